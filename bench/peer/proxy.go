package peer

import (
	"net/http"
	"net/http/httputil"
	"net/url"
)

// Proxy returns a plain [httputil.ReverseProxy] to target, with the two settings
// without which it cannot be measured: it keeps as many connections as it
// needs, where the default of two idle ones would measure handshakes; and its
// requests are full duplex, because otherwise the server closes a request's
// body when the answer begins, and the transport, which may still look for the
// body's end, then drops the connection in the middle of about one answer in a
// thousand.
func Proxy(target *url.URL) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1024,
			DisableCompression:  true,
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}
