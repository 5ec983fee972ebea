package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/task"
)

// A keyspace returns the names of the keys of one store. IDs and owners are at the end of a
// key, because they may contain any characters.
type keyspace string

// newKeyspace puts the prefix into braces: a cluster keeps all keys with the same text in
// braces on one node, where one script can change them.
func newKeyspace(prefix string) (keyspace, error) {
	if strings.ContainsAny(prefix, "{}") {
		return "", fmt.Errorf("the prefix %q has braces", prefix)
	}
	return keyspace("{" + prefix + "}:"), nil
}

func (k keyspace) format() string              { return string(k) + "format" }
func (k keyspace) changes() string             { return string(k) + "changes" }
func (k keyspace) task(id task.ID) string      { return string(k) + "task:" + string(id) }
func (k keyspace) blob(id task.ID) string      { return string(k) + "blob:" + string(id) }
func (k keyspace) list(s task.State) string    { return string(k) + "list:" + string(s) }
func (k keyspace) journal() string             { return string(k) + "journal" }
func (k keyspace) inbox() string               { return string(k) + "journal:inbox:2" }
func (k keyspace) inbox1() string              { return string(k) + "journal:inbox" } // of format 1
func (k keyspace) ends() string                { return string(k) + "journal:ends" }
func (k keyspace) journalOf(id task.ID) string { return string(k) + "story:" + string(id) }
func (k keyspace) records() string             { return string(k) + "records" }
func (k keyspace) recordsDue() string          { return string(k) + "records:due" }
func (k keyspace) record(name string) string   { return string(k) + "record:" + name }
func (k keyspace) due(h phase) string          { return string(k) + "due:" + string(h) }

// owing names the list of tasks with an owed cancellation.
func (k keyspace) owing() string { return string(k) + "owing" }

// bytes names the counter of the bytes of an account's tasks.
func (k keyspace) bytes(account string) string { return string(k) + "bytes:" + account }

// disposable names the list of the disposable tasks of an account.
func (k keyspace) disposable(account string) string { return k.allDisposable() + ":" + account }

func (k keyspace) allDisposable() string { return string(k) + "disposable" }

func (k keyspace) groups() string           { return string(k) + "rooms" }
func (k keyspace) group(name string) string { return string(k) + "room:" + name }

// tasks names the tasks of the members of a list.
func (k keyspace) tasks(members []string) []string {
	keys := make([]string, len(members))
	for i, member := range members {
		keys[i] = k.task(idOf(member))
	}
	return keys
}

func (k keyspace) owned(s task.State, owner string) string { return k.list(s) + ":" + owner }

func (k keyspace) call(h phase, d task.Digest, owner string) string {
	return string(k) + "call:" + string(h) + ":" + d.String() + ":" + owner
}

// channel names the channel of a database, because all databases share the channels.
func (k keyspace) channel(db int) string { return k.changes() + "@" + strconv.Itoa(db) }

// A phase is whether a task is pending or ended.
type phase string

const (
	pending phase = "pending"
	ended   phase = "ended"
)

func phaseOf(s task.State) phase {
	if s.Terminal() {
		return ended
	}
	return pending
}

// A listEntry has the constant fields that determine the lists of a task.
type listEntry struct {
	member string
	owner  string
	group  string
	digest task.Digest
}

func listEntryOf(t *task.Task) listEntry {
	return listEntry{member: member(t.Position()), owner: t.Owner, group: t.Group, digest: t.Digest}
}

// listsOf returns the four lists of a task in state s. The last one is sorted by due time,
// the others by member.
func (k keyspace) listsOf(c listEntry, s task.State) []string {
	h := phaseOf(s)
	return []string{k.list(s), k.owned(s, c.owner), k.call(h, c.digest, c.owner), k.due(h)}
}

const (
	stampSize = 16
	sign      = 1 << 63 // sorts times before 1970 first
)

// member returns the list member of the task at p. The byte order of members is the order
// of [task.Compare].
func member(p task.Position) string {
	ascending := uint64(p.CreatedAt.UnixMicro()) ^ sign
	return fmt.Sprintf("%0*x", stampSize, ^ascending) + string(p.ID)
}

// idOf returns the ID in a member.
func idOf(member string) task.ID { return task.ID(member[min(stampSize, len(member)):]) }

// timeOf returns the time of creation in a member.
func timeOf(member string) time.Time {
	stamp, _ := strconv.ParseUint(member[:min(stampSize, len(member))], 16, 64) // written by member
	return time.UnixMicro(int64(^stamp ^ sign)).UTC()
}

// micros returns t in microseconds, rounded up, so that comparisons with stored times are
// exact.
func micros(t time.Time) string {
	return strconv.FormatInt(t.Add(time.Microsecond-1).UnixMicro(), 10)
}
