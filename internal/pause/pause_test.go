package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !pause.For(t.Context(), time.Minute) || time.Since(began) != time.Minute {
			t.Errorf("the pause ended after %v; want a minute", time.Since(began))
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began = time.Now()
		if pause.For(ctx, time.Minute) || time.Since(began) != time.Second {
			t.Errorf("the pause ended after %v; want it to end with its context", time.Since(began))
		}
	})
}
