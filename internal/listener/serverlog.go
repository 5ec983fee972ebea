package listener

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// newServerLog returns the log of an [http.Server], which goes to another.
func newServerLog(to *slog.Logger) *log.Logger { return log.New(serverLog{to}, "", 0) }

// A serverLog takes what an [http.Server] logs.
type serverLog struct{ to *slog.Logger }

// handshakeFailed is how a line begins that anybody can cause who connects.
const handshakeFailed = "http: TLS handshake error from "

// Write implements [io.Writer]. It is called once for each line.
func (l serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	rest, failed := strings.CutPrefix(text, handshakeFailed)
	if !failed {
		l.to.Warn("HTTP server", "cause", text)
		return len(p), nil
	}
	from, cause, _ := strings.Cut(rest, ": ")
	address := admission.Address(from).Network()
	l.to.WarnContext(logging.Limited(context.Background(), "handshake", address), "TLS handshake failed", "address", from, "cause", cause)
	return len(p), nil
}
