package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// A shared server is started by the first test that needs it.
type shared struct {
	once    sync.Once
	start   func(context.Context) ([]*testenv.Redis, error)
	servers []*testenv.Redis
	err     error
}

var (
	alone = shared{start: func(ctx context.Context) ([]*testenv.Redis, error) {
		server, err := testenv.StartRedis(ctx)
		return []*testenv.Redis{server}, err
	}}
	cluster = shared{start: testenv.StartRedisCluster}
)

// server returns the first server, or nil if no server is available and the test should end.
func (s *shared) server(t testing.TB) *testenv.Redis {
	t.Helper()
	s.once.Do(func() { s.servers, s.err = s.start(context.WithoutCancel(t.Context())) })
	if !testenv.Available(t, s.err) {
		return nil
	}
	return s.servers[0]
}

func (s *shared) stop() error {
	var errs []error
	if s.err == nil {
		for _, server := range s.servers {
			errs = append(errs, server.Stop())
		}
	}
	return errors.Join(errs...)
}

// own starts a server for one test, which may change it in any way. It returns nil if no server
// is available and the test should end.
func own(t testing.TB, settings ...string) *testenv.Redis {
	t.Helper()
	server, err := testenv.StartRedis(t.Context(), settings...)
	if !testenv.Available(t, err) {
		return nil
	}
	t.Cleanup(func() { must(t, server.Stop()) })
	return server
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, err := range []error{alone.stop(), cluster.stop(), goleak.Find()} {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}
