package redisstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/redis/rueidis"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// format is the newest form of the keys. It is raised when programs that know
// only an older one must not write any more.
const format = "4"

// outdated begins the error of a script that is of an older format.
const outdated = "TGOUTDATED"

// guard begins every script that changes something. It takes the key of the
// format, which is the first, away, and refuses to go on if a newer program has
// changed it.
const guard = `local format = redis.call('GET', table.remove(KEYS, 1))
if format and format ~= '` + format + `' then
  return redis.error_reply('` + outdated + ` the keys have format ' .. format .. ', which this program does not know: update it')
end
`

// guarded returns the source of a script that begins with the guard, behind the
// line that tells what the script may do.
func guarded(source string) string {
	if !strings.HasPrefix(source, "#!") {
		return guard + source
	}
	first, rest, _ := strings.Cut(source, "\n")
	return first + "\n" + guard + rest
}

// keyed returns keys behind that of the format, as guarded scripts need them.
func (s *Store) keyed(keys []string) []string { return append([]string{s.keys.format()}, keys...) }

//go:embed scripts/open.lua
var openSource string

// checkFormat makes sure that this program understands the keys, and brings
// older ones up to date.
func (s *Store) checkFormat(ctx context.Context) error {
	ctx, done, err := s.begin(ctx, "open")
	if err != nil {
		return err
	}
	defer done()
	keys := []string{
		s.keys.format(), s.keys.inbox1(), s.keys.inbox(), s.keys.owing(), s.keys.list(task.Cancelled), s.keys.list(task.Expired),
	}
	found, err := rueidis.NewLuaScript(openSource).Exec(ctx, s.client, keys, []string{format}).ToString()
	if err == nil && found != format {
		err = fmt.Errorf("%w: format %q, and the newest known is %s; use a newer program", ErrSchema, found, format)
	}
	return err
}

// current returns nil if no newer program has changed the keys.
func (s *Store) current(ctx context.Context) error {
	found, err := s.client.Do(ctx, s.client.B().Get().Key(s.keys.format()).Build().Pin()).ToString()
	if rueidis.IsRedisNil(err) {
		return nil
	}
	if err == nil && found != format {
		err = &task.Error{Kind: task.KindOutdated, Err: fmt.Errorf("%w: format %q; update this program", ErrSchema, found)}
	}
	return err
}
