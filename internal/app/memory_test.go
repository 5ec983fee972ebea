package app

import "testing"

// Garbage is collected more often while many bytes of bodies are in use, or while the
// heap is large, and as usual when neither has been the case for a while.
func TestCollector(t *testing.T) {
	c := collector{usual: 300, percent: 300}
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
		{"no bodies any more", 0, 500 << 20, 100},
		{"nothing any more", 0, 10 << 20, 300},
	}
	for _, s := range steps {
		if got := c.next(s.bodies, s.heap); got != s.want {
			t.Errorf("%s: %d; want %d", s.what, got, s.want)
		}
	}
}

// An operator who has garbage collected more often than a gate would, has it so.
func TestCollectorKeepsLess(t *testing.T) {
	c := collector{usual: 80, percent: 80}
	if got := c.next(0, 1<<30); got != 80 {
		t.Errorf("%d; want 80", got)
	}
}
