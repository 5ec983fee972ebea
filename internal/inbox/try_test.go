package inbox_test

import (
	"net/http"
	"testing"
)

// Only admins see the policy, and what the record says about approvals.
func TestOnlyAdminsTry(t *testing.T) {
	o := open(t)
	for _, name := range []string{"vera", "rex", "alice"} {
		p := o.signIn(t, name)
		for _, path := range []string{"/suggestions", "/try", "/try?call=tg_1"} {
			if status, _, _ := p.do(http.MethodGet, path, ""); status != http.StatusForbidden {
				t.Errorf("%s sees %s: %d", name, path, status)
			}
		}
		if status, _, _ := p.do(http.MethodPost, "/try", "name=x"); status != http.StatusForbidden {
			t.Errorf("%s tries a call: %d", name, status)
		}
	}
}
