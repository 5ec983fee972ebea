package channel

import (
	"strings"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

// People reads names of approvers by the ids of their accounts. Want describes a valid id.
func People(p *map[string]string, want string, valid func(id string) bool) config.Setting {
	return config.Dict(func(key string) (config.Setting, string) {
		name := config.Read(new(string), "a name", func(s string) (string, bool) {
			if *p == nil {
				*p = map[string]string{}
			}
			(*p)[key] = s
			return s, config.IsWord(s)
		})
		if !valid(key) {
			return name, "must be " + want
		}
		return name, ""
	})
}

// IsNumber reports whether an id has digits only.
func IsNumber(id string) bool {
	return id != "" && len(id) <= 20 && strings.Trim(id, "0123456789") == ""
}
