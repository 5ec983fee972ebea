package peer

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// How many unused connections a gate keeps, and for how long.
const (
	keptConns = 256
	keptFor   = 90 * time.Second
)

// Proxy returns a plain [httputil.ReverseProxy] to target, with the settings
// without which it cannot be compared: it keeps as many connections as a gate
// does, where the default of two idle ones would measure handshakes; it uses its
// buffers again, where it would otherwise allocate 32 KiB for each answer; and its
// requests are full duplex, because otherwise the server closes a request's
// body when the answer begins, and the transport, which may still look for the
// body's end, then drops the connection in the middle of about one answer in a
// thousand.
func Proxy(target *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			MaxIdleConns:        keptConns,
			MaxIdleConnsPerHost: keptConns,
			IdleConnTimeout:     keptFor,
			DisableCompression:  true,
		},
		BufferPool: new(buffers),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// buffers are those through which the proxy copies answers.
type buffers struct{ pool sync.Pool }

// Get implements [httputil.BufferPool].
func (b *buffers) Get() []byte {
	if used, ok := b.pool.Get().(*[]byte); ok {
		return *used
	}
	return make([]byte, 32<<10)
}

// Put implements [httputil.BufferPool].
func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
