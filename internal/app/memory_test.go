package app

import "testing"

// Garbage is collected more often while bodies use much memory or the heap is large, and as
// usual after both have been small for a while.
func TestGCTuner(t *testing.T) {
	c := gcTuner{usual: 300, percent: 300}
	steps := []struct {
		what   string
		bodies int64
		heap   uint64
		want   int
	}{
		{"little of both", 1 << 20, 10 << 20, 300},
		{"many streams", 1 << 20, 65 << 20, 100},
		{"fewer streams", 1 << 20, 40 << 20, 100},
		{"few streams", 1 << 20, 20 << 20, 300},
		{"large bodies", 33 << 20, 20 << 20, 50},
		{"large bodies and many streams", 33 << 20, 500 << 20, 50},
		{"all bodies are released", 0, 500 << 20, 100},
		{"nothing any more", 0, 10 << 20, 300},
	}
	for _, s := range steps {
		if got := c.next(s.bodies, s.heap); got != s.want {
			t.Errorf("%s: %d; want %d", s.what, got, s.want)
		}
	}
}

// A GOGC that is lower than the tuner's value stays in effect.
func TestGCTunerKeepsLowerGOGC(t *testing.T) {
	c := gcTuner{usual: 80, percent: 80}
	if got := c.next(0, 1<<30); got != 80 {
		t.Errorf("%d; want 80", got)
	}
}
