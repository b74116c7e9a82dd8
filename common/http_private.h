/* What the files of the HTTP server share. */
#ifndef SB_HTTP_PRIVATE_H
#define SB_HTTP_PRIVATE_H

#include <microhttpd.h>

#include "http.h"

/* Memory of a connection. Chunks of a stream are as large as what headers leave of it. */
enum { SB_HTTP_CONNECTION_MEMORY = 80 * 1024 };

/*
 * A response that asks the stream for pieces as the client takes them, compressed if is_gzip. It owns the stream from
 * now on, and closes it when it goes. NULL when memory ran out; the stream is closed then as well.
 */
struct MHD_Response *sb_http_stream_response(struct sb_http_stream stream, bool is_gzip) SB_CHECK;

/* In the place of SB_HTTP_ANSWER_S, for tests. */
void sb_http_limit_answers(struct sb_http *self, int64_t ms);

#endif
