package human_test

import (
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/human"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0 milliseconds", 300 * time.Millisecond: "300 milliseconds", time.Second: "1 second",
		50*time.Second + time.Millisecond: "50 seconds", 90 * time.Second: "1 minute 30 seconds", 10 * time.Minute: "10 minutes",
		time.Hour: "1 hour", time.Hour + time.Second: "1 hour 1 second", 36 * time.Hour: "1 day 12 hours", 100*time.Hour + 59*time.Second: "4 days 4 hours",
	} {
		if got := human.Duration(d); got != want {
			t.Errorf("%v: %q; want %q", d, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 bytes", 1000: "1000 bytes", 1536: "1536 bytes", 2048: "2 KiB", 4 << 20: "4 MiB", 3 << 30: "3 GiB", 1 << 50: "1048576 GiB"} {
		if got := human.Size(n); got != want {
			t.Errorf("%d: %q; want %q", n, got, want)
		}
	}
}
