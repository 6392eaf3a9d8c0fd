/* disassemble.c: see disassemble.h. */
#include "symbols/disassemble.h"

#include <Zydis/Zydis.h>

void disassemble(const void *bytes, size_t n, uint64_t pc, char *text, size_t size)
{
    ZydisDecoder decoder;
    ZydisFormatter formatter;
    ZydisDecodedInstruction insn;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    text[0] = 0;
    if (!ZYAN_SUCCESS(ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)) ||
        !ZYAN_SUCCESS(ZydisFormatterInit(&formatter, ZYDIS_FORMATTER_STYLE_ATT)) ||
        !ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes, n, &insn, operands)) ||
        !ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&formatter, &insn, operands, insn.operand_count_visible,
                                                      text, size, pc, NULL)))
        text[0] = 0;
}
