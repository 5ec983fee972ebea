package admission_test

import (
	"sync"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/admission"
)

// A guest is somebody with a place.
type guest struct {
	*admission.Place

	gone bool // whether the place was taken away
}

func enter(t *testing.T, p *admission.Pool, c admission.Client) *guest {
	t.Helper()
	g := new(guest)
	place, err := p.Enter(c, func() { g.gone = true })
	if err != nil {
		t.Fatal(err)
	}
	g.Place = place
	return g
}

func gone(t *testing.T, what string, g *guest) {
	t.Helper()
	if !g.gone {
		t.Errorf("%s did not give way", what)
	}
}

func there(t *testing.T, what string, g *guest) {
	t.Helper()
	if g.gone {
		t.Errorf("%s gave way", what)
	}
}

// Of those with the most places, the place that is idle for longest gives way.
func TestPlace(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 5, Client: 4})
	lone := enter(t, p, near)
	busy, first, second, third := enter(t, p, here), enter(t, p, here), enter(t, p, here), enter(t, p, here)
	if !busy.Use() || !first.Use() {
		t.Fatal("a place is lost")
	}
	first.SetIdle() // after second and third
	enter(t, p, ann)
	gone(t, "the one idle for longest", second)
	if second.Use() {
		t.Error("a place that gave way can be used")
	}
	second.SetIdle()
	second.Leave() // in vain
	enter(t, p, admission.Principal("bob"))
	gone(t, "the next", third)
	for _, g := range []*guest{busy, first, lone} {
		there(t, "a place of one of those with fewer, or in use", g)
	}
	if used := p.Used(); used != 5 {
		t.Errorf("%d places in use", used)
	}
}

// A client that has its share gives up one of its own.
func TestPlaceOfOneClient(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 10, Client: 2})
	lone := enter(t, p, near)
	first, second := enter(t, p, here), enter(t, p, here)
	third := enter(t, p, here)
	gone(t, "the first", first)
	there(t, "the second", second)
	there(t, "another client's", lone)
	second.Use()
	third.Use()
	_, err := p.Enter(here, func() {})
	want(t, "all in use", err, admission.ErrClient)
	for _, g := range []*guest{second, third, lone, second} {
		g.Leave()
	}
	if used := p.Used(); used != 0 {
		t.Errorf("%d places in use in the end", used)
	}
}

// Places of principals do not help an anonymous client.
func TestPlaceOfAnonymous(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 3, Anonymous: 1})
	known, unknown := enter(t, p, ann), enter(t, p, here)
	unknown.Use()
	_, err := p.Enter(near, func() {})
	want(t, "anonymous clients have theirs", err, admission.ErrFull)
	there(t, "a principal's", known)
}

// Places that come and go at the same time are all counted.
func TestPlacesAtOnce(t *testing.T) {
	p := admission.NewPool(admission.Limits{Total: 4, Client: 2})
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			c := []admission.Client{here, near, ann}[i%3]
			for range 2000 {
				place, err := p.Enter(c, func() {})
				if err != nil {
					continue
				}
				if place.Use() && i%2 == 0 {
					place.SetIdle()
				}
				place.Leave()
			}
		})
	}
	clients.Wait()
	if used := p.Used(); used != 0 {
		t.Errorf("%d places in use in the end", used)
	}
}
