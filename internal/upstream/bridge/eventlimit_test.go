package bridge

import (
	"errors"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/httpclient"
	"github.com/thoughtgate/thoughtgate-go/internal/upstream/stdioclient"
)

// Unread answers take a bounded amount of memory, and one client cannot use up the share of
// another.
func TestLargeAnswers(t *testing.T) {
	const size = 1 << 20
	b := New(Config{Server: stdioclient.Config{Name: "test"}, Unread: admission.Limits{Total: 3 * size, Client: 2 * size}})
	answer := func(principal string, size int) (read func() error, err error) {
		memory := b.memoryFor(&request{by: httpclient.Peer{Principal: principal}})
		if err := memory.take(size); err != nil {
			return nil, err
		}
		return memory.response(make([]byte, size)).Body.Close, nil
	}
	var read []func() error
	for _, tt := range []struct {
		principal string
		size      int
		want      error
	}{
		{"ann", size, nil},
		{"ann", size, nil},
		{"ann", size, admission.ErrClient},
		{"ann", 1000, nil},
		{"bob", size, nil},
		{"bob", size, admission.ErrFull},
	} {
		done, err := answer(tt.principal, tt.size)
		if read = append(read, done); !errors.Is(err, tt.want) {
			t.Errorf("an answer of %d bytes for %s: %v; want %v", tt.size, tt.principal, err, tt.want)
		}
	}
	for range 2 {
		_ = read[0]()
	}
	_ = read[1]()
	if _, err := answer("ann", 5*size); err != nil {
		t.Errorf("the only answer of a client: %v", err)
	}
}
