package identity_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/identity"
)

func TestHash(t *testing.T) {
	h := identity.HashOf("tgo_abc")
	if got, err := identity.ParseHash(h.String()); err != nil || got != h {
		t.Errorf("got %v, %v", got, err)
	}
	if !h.Equal(identity.HashOf("tgo_abc")) {
		t.Error("the same token is not equal")
	}
	for _, other := range []string{"", "tgo_ab", "tgo_abd", "TGO_ABC", "tgo_abc "} {
		if h.Equal(identity.HashOf(other)) {
			t.Errorf("%q equals tgo_abc", other)
		}
	}
	for _, bad := range []string{"", "sha256:", h.String()[1:], h.String() + "0", h.String()[:70], strings.TrimPrefix(h.String(), "sha256:")} {
		if _, err := identity.ParseHash(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestBearerToken(t *testing.T) {
	for header, want := range map[string]string{
		"Bearer abc": "abc", "bearer abc": "abc", "Bearer ": "", "Bearer": "", "Basic abc": "", "abc": "", "": "",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Authorization", header)
		if got, given := identity.BearerToken(r); got != want || !given {
			t.Errorf("%q: got %q, %v", header, got, given)
		}
		r.Header.Add("Authorization", "Bearer other")
		if got, given := identity.BearerToken(r); got != "" || !given {
			t.Errorf("%q and another one: got %q, %v", header, got, given)
		}
	}
	if got, given := identity.BearerToken(httptest.NewRequest(http.MethodGet, "/", http.NoBody)); got != "" || given {
		t.Errorf("no header: got %q, %v", got, given)
	}
}

func TestNewToken(t *testing.T) {
	a, b := identity.NewToken("tgo"), identity.NewToken("tgo")
	if a == b || !strings.HasPrefix(a, "tgo_") || len(a) < identity.MinTokenLength {
		t.Errorf("got %q and %q", a, b)
	}
}
