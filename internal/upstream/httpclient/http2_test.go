package httpclient_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/upstream"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// Concurrent held calls share no HTTP/2 connection.
func TestHeldCallsUseSeparateHTTP2Connections(t *testing.T) {
	const calls = 3
	arrived, goOn := make(chan string), make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.Proto + " " + r.RemoteAddr
		<-goOn
	}))
	up.EnableHTTP2 = true
	up.StartTLS()
	defer up.Close()
	authority := x509.NewCertPool()
	authority.AddCert(up.Certificate())
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := httpclient.New(httpclient.Config{
		Name: "x", URL: target, TLS: &tls.Config{RootCAs: authority, MinVersion: tls.VersionTLS12}, ConnectTimeout: time.Minute, ResponseTimeout: time.Minute,
	})
	body := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	m, err := jsonrpc.ParseMessage(body, jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var running sync.WaitGroup
	for _, owner := range [calls]string{"ann", "bob", "ann"} {
		running.Go(func() {
			resp, err := c.Send(t.Context(), upstream.Request{Message: m, Body: body, Credentials: upstream.Credentials{Header: http.Header{}, Principal: owner, Owner: owner}})
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
		seen[<-arrived] = true
	}
	close(goOn)
	running.Wait()
	if len(seen) != calls {
		t.Errorf("%d calls came on %d connections: %v", calls, len(seen), seen)
	}
}
