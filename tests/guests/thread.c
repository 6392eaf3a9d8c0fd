/* A thread is refused by name. */
// FLAGS: -pthread
// REFUSES: thread
#include "guest.h"
#include <pthread.h>

static void *work(void *p)
{
    return p;
}

int main(void)
{
    say("before the thread\n");
    pthread_t t;
    if (pthread_create(&t, NULL, work, NULL) == 0)
        pthread_join(t, NULL);
    say("after the thread\n");
    return finish();
}
