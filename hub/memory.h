/* How the hub's process treats memory that a scrape has freed. */
#ifndef HUB_MEMORY_H
#define HUB_MEMORY_H

/*
 * Keeps some megabytes for the next scrape. By default malloc hands each scrape's memory back to the kernel at its end,
 * and the next one spends a seventh of its time on getting it again. Once, before there are threads.
 */
void hub_memory_keep(void);

#endif
