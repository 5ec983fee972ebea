package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A keyspace names the keys of one store. IDs and owners come last in a key,
// since they may hold anything.
type keyspace string

// newKeyspace puts the prefix into braces: a cluster keeps all keys with the
// same text in braces on one node, where a script can change them together.
func newKeyspace(prefix string) (keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return "", fmt.Errorf("the prefix %q has braces", prefix)
	}
	return keyspace("{" + prefix + "}:"), nil
}

func (k keyspace) format() string            { return string(k) + "format" }
func (k keyspace) changes() string           { return string(k) + "changes" }
func (k keyspace) task(id task.ID) string    { return string(k) + "task:" + string(id) }
func (k keyspace) blob(id task.ID) string    { return string(k) + "blob:" + string(id) }
func (k keyspace) list(s task.State) string  { return string(k) + "list:" + string(s) }
func (k keyspace) journal() string           { return string(k) + "journal" }
func (k keyspace) inbox() string             { return string(k) + "journal:inbox:2" }
func (k keyspace) inbox1() string            { return string(k) + "journal:inbox" } // of format 1
func (k keyspace) ends() string              { return string(k) + "journal:ends" }
func (k keyspace) story(id task.ID) string   { return string(k) + "story:" + string(id) }
func (k keyspace) records() string           { return string(k) + "records" }
func (k keyspace) recordsDue() string        { return string(k) + "records:due" }
func (k keyspace) record(name string) string { return string(k) + "record:" + name }
func (k keyspace) due(h half) string         { return string(k) + "due:" + string(h) }

// owing names the list of tasks that owe their upstream something.
func (k keyspace) owing() string { return string(k) + "owing" }

func (k keyspace) rooms() string           { return string(k) + "rooms" }
func (k keyspace) room(name string) string { return string(k) + "room:" + name }

func (k keyspace) owned(s task.State, owner string) string { return k.list(s) + ":" + owner }

func (k keyspace) call(h half, d task.Digest, owner string) string {
	return string(k) + "call:" + string(h) + ":" + d.String() + ":" + owner
}

// channel names the channel of a database: channels are shared by all.
func (k keyspace) channel(db int) string { return k.changes() + "@" + strconv.Itoa(db) }

// A half is either half of the states.
type half string

const (
	pending half = "pending"
	ended   half = "ended"
)

func halfOf(s task.State) half {
	if s.Terminal() {
		return ended
	}
	return pending
}

// A card is what lists need to know of a task. It never changes.
type card struct {
	member string
	owner  string
	room   string
	digest task.Digest
}

func cardOf(t *task.Task) card {
	return card{member: member(t.Position()), owner: t.Owner, room: t.Room, digest: t.Digest}
}

// places returns the four lists in which a task is while it is in state s. The
// last one is ordered by when it is due, the others by member.
func (k keyspace) places(c card, s task.State) []string {
	h := halfOf(s)
	return []string{k.list(s), k.owned(s, c.owner), k.call(h, c.digest, c.owner), k.due(h)}
}

const (
	stampSize = 16
	sign      = 1 << 63 // lets times before 1970 come before those after
)

// member returns the member of a list that stands for the task at p. Members
// compared byte by byte have the order of [task.Compare].
func member(p task.Position) string {
	ascending := uint64(p.CreatedAt.UnixMicro()) ^ sign
	return fmt.Sprintf("%0*x", stampSize, ^ascending) + string(p.ID)
}

// idOf returns the ID of the task that a member stands for.
func idOf(member string) task.ID { return task.ID(member[min(stampSize, len(member)):]) }

// timeOf returns when the task was created that a member stands for.
func timeOf(member string) time.Time {
	stamp, _ := strconv.ParseUint(member[:min(stampSize, len(member))], 16, 64) // member wrote it
	return time.UnixMicro(int64(^stamp ^ sign)).UTC()                           //nolint:gosec // only the bits matter
}

// micros returns the first whole microsecond that is not before t, so that
// comparing whole microseconds with it is the same as comparing times.
func micros(t time.Time) string {
	return strconv.FormatInt(t.Add(time.Microsecond-1).UnixMicro(), 10)
}
