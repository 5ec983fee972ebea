package httpserver

import (
	"context"
	"log"
	"log/slog"
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/logging"
)

// newServerLog returns the ErrorLog of an [http.Server]. Its lines go to another logger.
func newServerLog(to *slog.Logger) *log.Logger { return log.New(serverLog{to}, "", 0) }

// A serverLog turns the lines of an [http.Server] into structured ones.
type serverLog struct{ to *slog.Logger }

// handshakeFailed begins a line that every client can cause.
const handshakeFailed = "http: TLS handshake error from "

// Write implements [io.Writer]. It is called once for each line.
func (l serverLog) Write(p []byte) (int, error) {
	text := strings.TrimSpace(string(p))
	rest, failed := strings.CutPrefix(text, handshakeFailed)
	if !failed {
		l.to.Warn("HTTP server", "err", text)
		return len(p), nil
	}
	from, cause, _ := strings.Cut(rest, ": ")
	address := admission.Address(from).Network()
	l.to.WarnContext(logging.Limited(context.Background(), "handshake", address), "TLS handshake failed", "address", from, "err", cause)
	return len(p), nil
}
