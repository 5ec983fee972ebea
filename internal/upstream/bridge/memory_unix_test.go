//go:build unix

package bridge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// earlyAnswer is a server that reads the beginning of a request, writes a large answer
// to it, and reads nothing more.
const earlyAnswer = `id=$(head -c 300 | sed 's/.*"id":\("[^"]*"\).*/\1/')
printf '{"jsonrpc":"2.0","id":%s,"result":{"x":"%0200000d"}}\n' "$id" 0
exec sleep 1000`

// A server answers before it has read the request, and the client leaves. The memory of the answer
// is released.
func TestEarlyAnswerReleasesMemory(t *testing.T) {
	t.Parallel()
	b := New(Config{
		Server: stdioclient.Config{
			Name: "test", Command: []string{"sh", "-c", earlyAnswer}, MaxLine: 4 << 20, Grace: time.Second, Log: slog.New(slog.DiscardHandler),
		},
		Processes: admission.Limits{Total: 1}, Unread: admission.Limits{Total: 8 << 20},
		Idle: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(b.Close)
	ctx, leave := context.WithCancel(t.Context())
	text := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`
	packet, err := jsonrpc.Parse([]byte(text), jsonrpc.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	posted, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stdio", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r := &request{http: posted, by: httpclient.Peer{Principal: "ann"}, packet: packet, body: []byte(text)}
	p, err := b.start(ctx, processSpec{key: "test", principal: "ann", share: shareOf(r.by)})
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		_, err := b.serve(p, r)
		left <- err
	}()
	for deadline := time.Now().Add(time.Minute); b.unread.Used() == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the answer did not arrive")
		}
	}
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("a client that left while the server was reading: %v", err)
	}
	if n := b.unread.Used(); n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
}
