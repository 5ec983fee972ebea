package suggest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/internal/secrets"
)

// A shape is what the arguments of calls have in common.
type shape struct {
	equal  map[string]any    // arguments with one value
	prefix map[string]string // arguments below a directory, with its slash, which all calls have
	free   []string          // other arguments
	names  [][]string        // which arguments there may be together
	narrow bool              // each call has an argument that is not free, or none at all
}

// mostNames is how many different sets of arguments a shape may have, so that people can read it.
const mostNames = 3

// shapeOf returns the shape of the arguments of calls, or nil if they have nothing in common, or
// something that no rule may have.
func shapeOf(calls []heldCall) *shape {
	values := valuesOf(calls)
	if values == nil {
		return nil
	}
	s := &shape{equal: make(map[string]any), prefix: make(map[string]string)}
	for i := range calls {
		if names := slices.Sorted(maps.Keys(calls[i].read())); !s.has(names) {
			s.names = append(s.names, names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !plain(name) || !s.add(name, values[name], len(calls)) {
			return nil
		}
	}
	if !s.narrow && len(values) > 0 || len(s.names) > mostNames {
		return nil
	}
	slices.SortFunc(s.names, slices.Compare)
	return s
}

// valuesOf returns the values of each argument. It returns nil if the arguments of a call are not
// known, or have secrets, which no proposal may have.
func valuesOf(calls []heldCall) map[string][]any {
	values := make(map[string][]any)
	for i := range calls {
		args := calls[i].read()
		if args == nil || secrets.Standard().InJSON(calls[i].arguments) {
			return nil
		}
		for name, v := range args {
			values[name] = append(values[name], v)
		}
	}
	return values
}

// add adds an argument, which some of the calls have. It returns false if no rule may leave it to
// the agent.
func (s *shape) add(name string, values []any, calls int) bool {
	always := len(values) == calls
	if same(values) {
		s.equal[name] = values[0]
	} else if dir := directoryOf(values); always && dir != "" {
		s.prefix[name] = dir
	} else {
		s.free = append(s.free, name)
		return !decides(name) && !slices.ContainsFunc(values, isNumber)
	}
	s.narrow = s.narrow || always
	return true
}

func isNumber(v any) bool { _, ok := v.(float64); return ok }

// decides reports whether the name of an argument says that it is what a tool does, such as the
// command that it runs. No other argument limits it then.
func decides(name string) bool { return policy.HasWord(name, programWords) }

var programWords = []string{
	"arg", "args", "argv", "cmd", "code", "command", "commands", "eval", "exec", "expression", "function", "javascript", "js", "program",
	"python", "query", "queries", "script", "shell", "sql", "statement", "statements",
}

// sensitive reports whether the name of a tool says that it reads what agents should not see
// without being asked.
func sensitive(name string) bool { return policy.HasWord(name, secretWords) }

var secretWords = []string{
	"apikey", "cookie", "cookies", "credential", "credentials", "env", "environ", "environment", "key", "keys", "passphrase", "password",
	"passwords", "private", "secret", "secrets", "token", "tokens", "vault",
}

// has reports whether there may be exactly these arguments.
func (s *shape) has(names []string) bool {
	return slices.ContainsFunc(s.names, func(known []string) bool { return slices.Equal(known, names) })
}

func (c *heldCall) read() map[string]any { return read(c.arguments) }

// read returns the arguments of a call, or nil if they are not an object.
func read(arguments jsontext.Value) map[string]any {
	var args map[string]any
	if json.Unmarshal(arguments, &args) != nil {
		return nil
	}
	return args
}

// same reports whether all values are one bool, one plain text or one whole number.
func same(all []any) bool {
	switch first := all[0].(type) {
	case bool:
	case string:
		if !plain(first) {
			return false
		}
	case float64:
		if first != math.Trunc(first) || math.Abs(first) > mostNumber {
			return false
		}
	default:
		return false
	}
	return !slices.ContainsFunc(all, func(v any) bool { return v != all[0] })
}

const mostNumber = 1 << 53 // Cedar has no larger ones

// directoryOf returns the directory, with its slash, that has all paths or URLs, or "". A
// directory that has those of several programs or people is too much.
func directoryOf(all []any) string {
	common, _ := all[0].(string)
	for _, v := range all {
		text, ok := v.(string)
		if !ok || !plain(text) || leaves(text) {
			return ""
		}
		for !strings.HasPrefix(text, common) {
			common = common[:len(common)-1]
		}
	}
	common = common[:strings.LastIndex(common, "/")+1]
	scheme, rest, isURL := strings.Cut(common, "://")
	tooMuch := strings.Index(rest, "/") <= 0 // no host
	if !isURL {
		tooMuch = tooWide(common)
	} else if scheme == "file" {
		tooMuch = tooWide(rest)
	}
	if tooMuch {
		return ""
	}
	return common
}

// tooWide reports whether a directory has those of several programs or people, or may be another
// text with a slash.
func tooWide(path string) bool {
	if !strings.HasPrefix(path, "/") && strings.Trim(path, letters+"~./-") != "" {
		return true
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	least := 1
	switch top := parts[0]; {
	case top == "~" || top == ".":
		least = 2
	case !strings.HasPrefix(path, "/"):
	case slices.Contains(manyHomes, top):
		least = 3
	case slices.Contains(manyPrograms, top):
		least = 2
	}
	return parts[0] == "" || len(parts) < least
}

// Directories at the top of a file system.
var (
	manyHomes    = []string{"home", "Users", "private", "var"}
	manyPrograms = []string{"bin", "boot", "dev", "etc", "lib", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "usr", "Volumes"}
)

// leaving are the texts with which a path may lead out of its directory, or to a hidden file.
var leaving = []string{"..", "%", "/."}

func leaves(path string) bool {
	return slices.ContainsFunc(leaving, func(text string) bool { return strings.Contains(path, text) })
}

// fits reports whether arguments have the shape.
func (s *shape) fits(arguments jsontext.Value) bool {
	args := read(arguments)
	if !s.has(slices.Sorted(maps.Keys(args))) {
		return false
	}
	for name, v := range args {
		if want, ok := s.equal[name]; ok && v != want {
			return false
		}
	}
	for name, dir := range s.prefix {
		if text, ok := args[name].(string); !ok || !strings.HasPrefix(text, dir) || leaves(text) {
			return false
		}
	}
	return true
}

// risk describes the risk of forwarding calls with the shape.
func (s *shape) risk() string {
	var risks []string
	if len(s.free) > 0 {
		risks = append(risks, "the agent chooses "+strings.Join(s.free, ", "))
	}
	paths, urls := false, false
	for _, dir := range s.prefix {
		isURL := strings.Contains(dir, "://")
		paths, urls = paths || !isURL, urls || isURL
	}
	if paths {
		risks = append(risks, "a link in the directory may lead out of it")
	}
	if urls {
		risks = append(risks, "the rest of the URL may tell others anything, and a redirect may lead elsewhere")
	}
	if len(s.prefix)+len(s.free) == 0 {
		return "the same call runs as often as the agent likes, without being seen"
	}
	return strings.Join(append(risks, "values that no recorded call had are forwarded too"), "; ")
}

// cedar returns policies that forward calls with the shape, and hold others.
func (s *shape) cedar(upstream, name string) string {
	var forms []string
	for _, names := range s.names {
		forms = append(forms, s.form(names))
	}
	conditions := []string{strings.Join(forms, "\n    || ")}
	if len(forms) > 1 {
		conditions[0] = "(" + conditions[0] + ")"
	}
	for _, arg := range slices.Sorted(maps.Keys(s.prefix)) {
		conditions = append(conditions, fmt.Sprintf(`%s like "%s*"`, valueOf(arg), strings.ReplaceAll(s.prefix[arg], "*", `\*`)))
		for _, text := range leaving {
			conditions[len(conditions)-1] += fmt.Sprintf(` && !(%s like "*%s*")`, valueOf(arg), text)
		}
	}
	scope := fmt.Sprintf("permit (principal, action == ThoughtGate::Action::\"call\", resource == ThoughtGate::Tool::%q)\nwhen { context.upstream == %q }", name, upstream)
	return fmt.Sprintf("@id(\"%s-on-%s\")\n%s;\n\n// Asks unless the call has these arguments and no others.\n@id(\"other-%s-on-%s\") @approval\n%s\nunless {\n  %s\n};\n",
		name, upstream, scope, name, upstream, scope, strings.Join(conditions, "\n  && "))
}

// form returns a condition for calls that have exactly these arguments.
func (s *shape) form(names []string) string {
	has, members := "", make([]string, len(names))
	for i, name := range names {
		if value, ok := s.equal[name]; ok {
			members[i] = key(name) + ": " + literalOf(value)
		} else {
			has += "context.arguments has " + key(name) + " && "
			members[i] = key(name) + ": " + valueOf(name)
		}
	}
	return has + "context.arguments == {" + strings.Join(members, ", ") + "}"
}

// key returns the name of an argument as Cedar has it.
func key(name string) string {
	if strings.Trim(name, letters) != "" || strings.Contains(digits, name[:1]) || slices.Contains(reserved, name) {
		return strconv.Quote(name)
	}
	return name
}

// valueOf returns the value of an argument as Cedar has it.
func valueOf(name string) string {
	if k := key(name); k != name {
		return "context.arguments[" + k + "]"
	}
	return "context.arguments." + name
}

const digits = "0123456789"

// reserved words of Cedar are no names.
var reserved = []string{"else", "false", "has", "if", "in", "is", "like", "then", "true", "__cedar"}

// literalOf returns a value of an argument as Cedar has it.
func literalOf(value any) string {
	switch v := value.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		return strconv.FormatInt(int64(v), 10)
	default:
		return fmt.Sprint(v)
	}
}
