package policy_test

import (
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
)

func TestWords(t *testing.T) {
	for name, want := range map[string]string{
		"delete_user":          "delete user",
		"deleteUser":           "delete user",
		"DELETE-USER":          "delete user",
		"user.delete":          "user delete",
		"HTTPServer2go":        "http server 2 go",
		"list2delete":          "list 2 delete",
		"file:///home/me/.env": "file home me env",
		"löscheÄlteste":        "lösche älteste",
		"日本":                   "日本",
		"_-.":                  "",
	} {
		if got := strings.Join(policy.Words(name), " "); got != want {
			t.Errorf("the words of %q are %q; want %q", name, got, want)
		}
	}
}
