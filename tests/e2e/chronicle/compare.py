"""compare.py CLIO DB ADDRESS LENGTH FILE: every byte of [ADDRESS, ADDRESS + LENGTH) is in FILE what DB says was last written."""
import json
import subprocess
import sys

clio, db, start, length, name = sys.argv[1:]
start, length = int(start, 16), int(length)
memory = open(name, "rb").read()
assert len(memory) == length, (len(memory), length)
wrong = 0
step = 2048
for low in range(0, length, step):
    asked = f"{start + low:#x}+{min(step, length - low)}"
    said = subprocess.run([clio, "query", db, "last-write", asked, "--json"], capture_output=True, text=True, check=True)
    at = start + low
    for answer in json.loads(said.stdout)["answers"]:
        assert int(answer["address"], 16) == at, answer
        at += answer["length"]
        value = bytes.fromhex(answer.get("value", ""))
        place = int(answer["address"], 16) - start
        if answer["kind"] == "none" or memory[place : place + len(value)] != value:
            wrong += 1
            if wrong <= 5:
                print("memory holds", memory[place : place + len(value)].hex(), "but", answer)
    assert at == start + min(low + step, length)
sys.exit(wrong != 0)
