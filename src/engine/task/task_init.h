/* task_init.h: makes the process's task and points gs at it. */
#ifndef CLIO_ENGINE_TASK_INIT_H
#define CLIO_ENGINE_TASK_INIT_H

#include "engine/guest/engine.h"
#include "engine/guest/task.h"

struct task *task_init(void);

#endif
