package bearer_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/bearer"
)

func TestHash(t *testing.T) {
	h := bearer.HashOf("tgo_abc")
	if got, err := bearer.ParseHash(h.String()); err != nil || got != h {
		t.Errorf("got %v, %v", got, err)
	}
	if !h.Equal(bearer.HashOf("tgo_abc")) {
		t.Error("the same token is not equal")
	}
	for _, other := range []string{"", "tgo_ab", "tgo_abd", "TGO_ABC", "tgo_abc "} {
		if h.Equal(bearer.HashOf(other)) {
			t.Errorf("%q is taken for tgo_abc", other)
		}
	}
	for _, bad := range []string{"", "sha256:", h.String()[1:], h.String() + "0", h.String()[:70], strings.TrimPrefix(h.String(), "sha256:")} {
		if _, err := bearer.ParseHash(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestIn(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "Bearer ": "", "Bearer": "", "Basic abc": "", "abc": "", "": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", header)
		if got, given := bearer.In(r); got != want || !given {
			t.Errorf("%q: got %q, %v", header, got, given)
		}
		r.Header.Add("Authorization", "Bearer other")
		if got, given := bearer.In(r); got != "" || !given {
			t.Errorf("%q and another one: got %q, %v", header, got, given)
		}
	}
	if got, given := bearer.In(httptest.NewRequest(http.MethodGet, "/", http.NoBody)); got != "" || given {
		t.Errorf("nothing: got %q, %v", got, given)
	}
}

func TestNew(t *testing.T) {
	a, b := bearer.New("tgo"), bearer.New("tgo")
	if a == b || !strings.HasPrefix(a, "tgo_") || len(a) < bearer.Shortest {
		t.Errorf("got %q and %q", a, b)
	}
}
