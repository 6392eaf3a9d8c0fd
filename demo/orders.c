/*
 * orders.c: a program that crashes far from its cause.
 *
 * A small trading desk: customers, each with an account on which orders are booked, and a journal that counts
 * booked orders by kind. Slots of customers come from a pool and are used again after a customer has left.
 * Somebody keeps a pointer for too long; find out who. `make demo` does.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct account {
    long balance;
    long orders;
};

struct customer {
    char name[16];
    struct account *account;
    long limit;
};

/* The number of the last order of each kind; lives in a slot of the same pool as customers do. */
struct journal {
    long last[4];
};

enum { SLOTS = 64, ROUNDS = 2000000 };

static union slot {
    struct customer customer;
    struct journal journal;
    union slot *next_free;
} pool[SLOTS];
static union slot *free_slots;
static struct account accounts[SLOTS];
static struct customer *customers[SLOTS / 2];
static struct journal *daily;

static void *slot_take(void)
{
    union slot *slot = free_slots;
    free_slots = slot->next_free;
    memset(slot, 0, sizeof *slot);
    return slot;
}

static void slot_give(void *old)
{
    union slot *slot = old;
    slot->next_free = free_slots;
    free_slots = slot;
}

static struct customer *customer_open(int number)
{
    struct customer *c = slot_take();
    snprintf(c->name, sizeof c->name, "customer %d", number);
    c->account = &accounts[number % SLOTS];
    c->limit = 1000 + number;
    return c;
}

__attribute__((noinline)) static void customer_book(struct customer *c, long amount)
{
    c->account->balance += amount;
    c->account->orders++;
}

__attribute__((noinline)) static void journal_note(struct journal *j, unsigned kind, long order)
{
    j->last[kind & 3] = order;
}

/* The day is over: the journal is given back, and a new customer may get its slot. */
static void close_day(void)
{
    printf("day closed, last orders %ld %ld %ld %ld\n", daily->last[0], daily->last[1], daily->last[2],
           daily->last[3]);
    slot_give(daily);
}

int main(void)
{
    setlinebuf(stdout);
    for (int i = SLOTS - 1; i >= 0; i--)
        slot_give(&pool[i]);
    for (int i = 0; i < SLOTS / 2 - 1; i++)
        customers[i] = customer_open(i);
    daily = slot_take();

    unsigned random = 1;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1103515245 + 12345;
        if (round < ROUNDS / 4)
            journal_note(daily, random >> 8, round);
        if (round == ROUNDS / 4) {
            close_day();
            customers[SLOTS / 2 - 1] = customer_open(SLOTS / 2 - 1);
        }
        if (round == ROUNDS / 2)
            journal_note(daily, 2, round); /* a late order, noted in yesterday's journal */
        unsigned who = random >> 16 & (SLOTS / 2 - 1);
        if (customers[who] && (who != SLOTS / 2 - 1 || round > ROUNDS - 1000))
            customer_book(customers[who], (long)(random >> 8 & 255));
    }
    printf("all is well\n");
    return 0;
}
