package peer

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// The number of idle connections that a gate keeps, and for how long.
const (
	keptConns = 256
	keptFor   = 90 * time.Second
)

// Proxy returns a plain [httputil.ReverseProxy] to target with settings that make it
// comparable. It keeps as many idle connections as a gate, because the default of two would
// measure handshakes. It reuses buffers, because otherwise it would allocate 32 KiB for each
// answer. Its requests are full duplex: otherwise the server closes the request body when the
// answer begins, and the transport, which may still read the end of the body, closes the
// connection in the middle of about one answer in a thousand.
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

// buffers are the buffers for copying answers.
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
