package listener

import "context"

// Left reports whether the client of a request is known to have left, given the context of
// the request. The context ends a moment after the client leaves, when net/http has noticed
// it; the connection knows at once.
func Left(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	conn, ok := ctx.Value(connKey{}).(*boundedConn)
	return ok && hasEnded(conn.Conn)
}
