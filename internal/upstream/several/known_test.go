package several

import (
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// Whatever clients see, the memory for it has a limit, and the client that saw something last keeps it.
func TestKnownIsBounded(t *testing.T) {
	k := known[int]{maxTexts: maxURIs}
	long := strings.Repeat("x", maxText-8)
	for client := range 3 {
		for i := range maxURIs {
			k.update(strconv.Itoa(client), long+strconv.Itoa(i), func(int) int { return i })
		}
	}
	total := 0
	for _, texts := range k.clients {
		for text := range texts {
			total += sizeOf(text)
		}
	}
	if total > maxKnown || total != k.size {
		t.Errorf("%d bytes, counted as %d; the limit is %d", total, k.size, maxKnown)
	}
	if v, ok := k.get("2", long+strconv.Itoa(maxURIs-1)); !ok || v != maxURIs-1 {
		t.Error("the last text is not known")
	}
	for i := range 2 * maxClients {
		k.update("of many "+strconv.Itoa(i), "x", func(int) int { return i })
	}
	if n := len(k.clients); n > maxClients {
		t.Errorf("%d clients", n)
	}
}

// A server takes no resources of those before it, neither by a list nor by a template.
func TestOwnerIsFirst(t *testing.T) {
	var log strings.Builder
	e := New("/mcp", []ServerConfig{{Client: newClient("a")}, {Client: newClient("b"), Prefix: "b"}}, nil, time.Second, slog.New(slog.NewTextHandler(&log, nil)))
	defer e.Close()
	list := func(method string, texts ...string) string {
		var parts []Part
		for i, text := range texts {
			parts = append(parts, Part{Server: e.Servers[i], Results: []jsonrpc.Value{{Bytes: []byte(text)}}})
		}
		return string(e.MergeLists("client", method, mcp.Legacy, parts))
	}
	if got := list(mcpname.ResourcesTemplatesList, `{"resourceTemplates":[{"uriTemplate":"a://{x}"}]}`, `{"resourceTemplates":[{"uriTemplate":"a://{x}"},{"uriTemplate":"{+all}"}]}`); strings.Count(got, `"a://{x}"`) != 2 || !strings.Contains(got, `"thoughtgate/collisions":["a://{x}"]`) {
		t.Errorf("the templates are %s", got)
	}
	if got := list(mcpname.ResourcesList, `{"resources":[{"uri":"s://1"}]}`, `{"resources":[{"uri":"s://1"},{"uri":"a://2"},{"uri":"s://3"}]}`); !strings.Contains(got, `"thoughtgate/collisions":["s://1","a://2"]`) || strings.Count(got, `"uri"`) != 2 {
		t.Errorf("the resources are %s", got)
	}
	for uri, want := range map[string]string{"s://1": "a", "a://2": "a", "a://9": "a", "s://3": "b", "other": "b"} {
		if got := e.Owner("client", uri); got == nil || got.Name() != want {
			t.Errorf("the owner of %s is not %s", uri, want)
		}
	}
	if got := log.String(); !strings.Contains(got, "name=s://1 upstream=b means_upstream=a") {
		t.Errorf("the log is %s", got)
	}
}
