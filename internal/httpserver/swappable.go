package httpserver

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A swappableHandler serves with a handler that can be replaced at any time. It counts
// the running requests.
type swappableHandler struct {
	current     atomic.Pointer[http.Handler]
	streams     streams
	bodyTimeout time.Duration // see [Config.BodyTimeout]
	serving     admission.InFlight
}

func (l *swappableHandler) set(h http.Handler) { l.current.Store(&h) }

// ServeHTTP implements [http.Handler].
func (l *swappableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.serving.Begin(0)
	if l.takeOver(w, r) {
		return
	}
	defer l.serving.End()
	if l.bodyTimeout > 0 && r.ContentLength != 0 && !readBody(w, r, l.bodyTimeout) {
		panic(http.ErrAbortHandler)
	}
	(*l.current.Load()).ServeHTTP(w, r)
}
