package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// format is the version of the keys. Raise it when earlier programs must stop writing.
const format = "6"

// outdated is the prefix of the error of a script with an older format.
const outdated = "TGOUTDATED"

// guard is the beginning of every script that changes data. It removes the first key, which is
// that of the format, and fails if a newer program has changed the format.
//
//mutate:swap "if format and" "if false and" TestOutdatedGateOnlyReads an older program writes to newer keys
const guard = `local format = redis.call('GET', table.remove(KEYS, 1))
if format and format ~= '` + format + `' then
  return redis.error_reply('` + outdated + ` the keys have format ' .. format .. ', which this program does not know: update it')
end
`

// withGuard returns the source of a script with the guard, after the line with its flags.
func withGuard(source string) string {
	if !strings.HasPrefix(source, "#!") {
		return guard + source
	}
	first, rest, _ := strings.Cut(source, "\n")
	return first + "\n" + guard + rest
}

// withFormatKey returns keys after the key of the format, which the guard needs.
func (s *Store) withFormatKey(keys []string) []string {
	return append([]string{s.keys.format()}, keys...)
}

//go:embed scripts/open.lua
var openSource string

// checkFormat migrates the keys from older formats, and returns an error if this program does
// not know their format.
func (s *Store) checkFormat(ctx context.Context) error {
	keys := []string{
		s.keys.format(), s.keys.inbox1(), s.keys.inbox(), s.keys.owing(), s.keys.list(task.Cancelled), s.keys.list(task.Expired),
	}
	ctx, done := context.WithTimeoutCause(ctx, s.timeout, errNoAnswer)
	defer done()
	found, err := rueidis.NewLuaScript(openSource).Exec(ctx, s.client, keys, []string{format}).ToString()
	if err == nil && found != format {
		err = fmt.Errorf("%w: format %q, and the newest known is %s; use a newer program", ErrSchema, found, format)
	}
	return err
}

// checkCurrent returns an error if a newer program has migrated the keys.
func (s *Store) checkCurrent(ctx context.Context) error {
	found, err := s.client.Do(ctx, s.client.B().Get().Key(s.keys.format()).Build().Pin()).ToString()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	if err == nil && found != format {
		err = &task.Error{Kind: task.ErrOutdated, Err: fmt.Errorf("%w: format %q; update this program", ErrSchema, found)}
	}
	return err
}
