package mcpclient_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/demo"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/internal/mcpclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, h http.Handler, progress func(string)) (*mcpclient.Client, error) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	target, err := url.Parse(server.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}
	c, err := mcpclient.Connect(t.Context(), mcpclient.Config{Name: "test", URL: target, Version: "1", Progress: progress, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, err
}

// legacyOnly refuses requests of the modern era, as a server does that does not know it.
func legacyOnly(status int) http.Handler {
	all := demo.New()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Mcp-Protocol-Version") == mcp.Version20260728 {
			w.WriteHeader(status)
			return
		}
		all.ServeHTTP(w, r)
	})
}

func TestCallInBothEras(t *testing.T) {
	for name, server := range map[string]http.Handler{
		"modern": demo.New(), "legacy, 400": legacyOnly(http.StatusBadRequest), "legacy, 404": legacyOnly(http.StatusNotFound),
		"legacy, 500": legacyOnly(http.StatusInternalServerError),
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var said []string
			c, err := connect(t, server, func(text string) {
				mu.Lock()
				defer mu.Unlock()
				said = append(said, text)
			})
			if err != nil {
				t.Fatal(err)
			}
			tools, err := c.Tools(t.Context())
			if err != nil || len(tools) != 6 || tools[1].Name != "read_file" || tools[1].Description == "" {
				t.Errorf("tools %v, %v", tools, err)
			}
			read, err := c.Call(t.Context(), "read_file", jsontext.Value(`{"path":"/notes/todo.txt"}`))
			if err != nil || read.Failed || !strings.HasPrefix(read.Text, "1. teach the agent") || strings.HasSuffix(read.Text, "\n") {
				t.Errorf("%+v, %v", read, err)
			}
			missing, err := c.Call(t.Context(), "read_file", jsontext.Value(`{"path":"/none"}`))
			if err != nil || !missing.Failed {
				t.Errorf("%+v, %v", missing, err)
			}
			if _, err := c.Call(t.Context(), "slow_report", jsontext.Value(`{"seconds":1}`)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !strings.Contains(strings.Join(said, "\n"), "page 1") {
				t.Errorf("progress %q", said)
			}
		})
	}
}

// script answers tools/call with one result after the other, and anything else with an empty result.
func script(results ...string) (http.Handler, *[]string) {
	var mu sync.Mutex
	calls := new([]string)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		id, _, _ := strings.Cut(strings.TrimPrefix(string(body), `{"id":`), ",")
		mu.Lock()
		defer mu.Unlock()
		answer := `{"supportedVersions":["2026-07-28"]}`
		if r.Header.Get("Mcp-Method") == "tools/call" {
			answer = results[len(*calls)]
			*calls = append(*calls, string(body))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, answer)
	}), calls
}

// A server may answer that a call is to be repeated with its state, for example because it waits.
func TestRepeatedCall(t *testing.T) {
	server, calls := script(`{"resultType":"input_required","requestState":"s1","inputRequests":{}}`, `{"resultType":"complete","content":[{"type":"text","text":"done"},{"type":"image","data":""}]}`)
	c, err := connect(t, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Call(t.Context(), "wait", jsontext.Value(`{}`))
	if err != nil || got.Text != "done\n[image, not shown]" {
		t.Errorf("%q, %v", got.Text, err)
	}
	if len(*calls) != 2 || strings.Contains((*calls)[0], "requestState") || !strings.Contains((*calls)[1], `"requestState":"s1"`) {
		t.Errorf("sent %q", *calls)
	}
}

func TestToolThatAsksForInput(t *testing.T) {
	server, _ := script(`{"resultType":"input_required","requestState":"s1","inputRequests":{"a":{"method":"elicitation/create"}}}`)
	c, err := connect(t, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Call(t.Context(), "ask", jsontext.Value(`{}`)); err == nil || !strings.Contains(err.Error(), "asks for input") {
		t.Errorf("%v", err)
	}
}

func TestErrors(t *testing.T) {
	c, err := connect(t, demo.New(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Call(t.Context(), "no_such_tool", jsontext.Value(`{}`))
	if refused, ok := errors.AsType[*mcpclient.ServerError](err); !ok || refused.Code != -32602 {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = c.Call(ended, "slow_report", jsontext.Value(`{"seconds":100}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusNotFound} {
		if _, err := connect(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }), nil); err == nil || !strings.Contains(err.Error(), fmt.Sprint(status)) {
			t.Errorf("status %d: %v", status, err)
		}
	}
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	target, _ := url.Parse(closed.URL)
	_, err = mcpclient.Connect(t.Context(), mcpclient.Config{URL: target, Log: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, mcpclient.ErrNoAnswer) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v", err)
	}
}
