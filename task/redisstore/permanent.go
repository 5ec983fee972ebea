package redisstore

import (
	"errors"
	"slices"
	"strings"

	"github.com/redis/rueidis"
)

// Permanent reports whether an error of [Open] stays until the settings of the server or of the
// store are changed. Other errors may be temporary.
func Permanent(err error) bool {
	if errors.Is(err, ErrURL) || errors.Is(err, ErrSchema) || errors.Is(err, ErrEvicts) {
		return true
	}
	refused, ok := errors.AsType[*rueidis.RedisError](err)
	return ok && slices.ContainsFunc([]string{"WRONGPASS", "NOAUTH", "NOPERM", "DB index"},
		func(prefix string) bool { return strings.HasPrefix(refused.Error(), prefix) })
}
