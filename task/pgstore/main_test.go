package pgstore_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// A shared server is started by the first test that needs it.
type shared struct {
	once   sync.Once
	server *testenv.Postgres
	err    error
}

var postgres shared

// start returns the server, or nil if no server is available and the test should end.
func (s *shared) start(t testing.TB) *testenv.Postgres {
	t.Helper()
	s.once.Do(func() { s.server, s.err = testenv.StartPostgres(context.WithoutCancel(t.Context())) })
	if !testenv.Available(t, s.err) {
		return nil
	}
	return s.server
}

func (s *shared) stop() error {
	if s.server == nil {
		return nil
	}
	return s.server.Stop()
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{postgres.stop(), goleak.Find()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
