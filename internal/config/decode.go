package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds on a file. The parser takes quadratic time in the number of tokens,
// and recursion in their nesting, so both are bounded before it starts; aliases
// can name a large value many times, so values are counted once more.
const (
	maxFile    = 1 << 20
	maxTokens  = 50_000
	maxNesting = 64
	maxValues  = 100_000
)

// A decoder stores one file's values in the tree of settings.
type decoder struct {
	*loader
	file    string
	anchors map[string]ast.Node
	values  int // met so far, keys included
}

// decode stores what src says, and notes what is wrong with it.
func (l *loader) decode(file string, src []byte) {
	d := &decoder{loader: l, file: file, anchors: map[string]ast.Node{}}
	start := Position{Source: file, Line: 1, Column: 1}
	l.origins[""] = start
	body := d.parse(src)
	switch {
	case body != nil:
		d.value("", l.cfg.settings(), body)
	case len(l.problems) == 0:
		l.report(start, "", "the file is empty")
	}
	if d.values > maxValues {
		l.problems = []Problem{{start, "", fmt.Sprintf("the file has more than %d values, aliases included", maxValues)}}
		body = nil
	}
	l.unread = body == nil
	if _, given := l.origins["version"]; !given && !l.faulty("version") && !l.unread {
		l.report(start, "version", "is required; write version: 1")
	}
}

// parse returns the one document in src, or nil.
func (d *decoder) parse(src []byte) ast.Node {
	if !d.readable(src) {
		return nil
	}
	tokens := lexer.Tokenize(string(bytes.TrimPrefix(src, []byte("\uFEFF"))))
	if !d.bounded(tokens) {
		return nil
	}
	f, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(src, err)
		return nil
	}
	if len(f.Docs) > 1 {
		d.report(d.at(f.Docs[1].Start), "", "a file must contain one YAML document")
		return nil
	}
	if len(f.Docs) == 0 {
		return nil
	}
	return f.Docs[0].Body
}

func (d *decoder) readable(src []byte) bool {
	start := Position{Source: d.file, Line: 1, Column: 1}
	if len(src) > maxFile {
		d.report(start, "", fmt.Sprintf("the file has more than %d bytes", maxFile))
		return false
	}
	if !utf8.Valid(src) {
		d.report(start, "", "the file is not UTF-8")
		return false
	}
	return true
}

// bounded reports whether the parser can be trusted with tokens.
func (d *decoder) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		d.report(d.at(tokens[maxTokens]), "", fmt.Sprintf("the file has more than %d YAML tokens", maxTokens))
		return false
	}
	open, dashes, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			dashes, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open--
		case token.SequenceEntryType:
			dashes++
		default:
		}
		if open > maxNesting || dashes > maxNesting {
			d.report(d.at(t), "", fmt.Sprintf("values are nested more than %d deep", maxNesting))
			return false
		}
	}
	return true
}

// syntax reports a parser's error without anything that it quotes from the file.
func (d *decoder) syntax(src []byte, err error) {
	var located interface {
		error
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &located) {
		d.report(Position{Source: d.file, Line: 1, Column: 1}, "", "the file is not YAML")
		return
	}
	message, _, _ := strings.Cut(located.GetMessage(), `"`)
	message = strings.ReplaceAll(strings.TrimRight(message, ": "), "\t", `\t`)
	at := d.at(located.GetToken())
	if bareAsterisk.MatchString(lineOf(src, at.Line)) {
		message = asteriskHint
	}
	d.report(at, "", "not YAML: "+message)
}

// bareAsterisk finds a value that begins with an asterisk and has no quotes.
var bareAsterisk = regexp.MustCompile(`[:,\[-]\s*\*`)

const asteriskHint = `a value that begins with * needs quotes, as in match: "*"`

// lineOf returns a line of a file, counted from 1.
func lineOf(src []byte, n int) string {
	i := 1
	for line := range bytes.Lines(src) {
		if i == n {
			return string(line)
		}
		i++
	}
	return ""
}

// value stores node in the setting at path.
func (d *decoder) value(path string, to setting, node ast.Node) {
	if d.values++; d.values > maxValues {
		return
	}
	node = d.resolve(path, node)
	if node == nil {
		return
	}
	d.origins[path] = d.position(node)
	switch to := to.(type) {
	case leaf:
		d.scalar(path, to, node)
	case group:
		d.eachEntry(path, node, func(path, key string, e *ast.MappingValueNode) {
			d.member(path, to.find(key), to.suggest(key), e)
		})
	case dict:
		d.eachEntry(path, node, func(path, key string, e *ast.MappingValueNode) {
			to, wrong := to.item(key)
			if wrong != "" {
				d.report(d.position(e.Key), path, wrong)
				return
			}
			d.value(path, to, e.Value)
		})
	case either:
		switch node.(type) {
		case *ast.MappingNode, *ast.MappingValueNode:
			d.value(path, to.long, node)
		default:
			d.scalar(path, to.short, node)
		}
	case list:
		d.sequence(path, to, node)
	case required: // find returns what is required
	}
}

// resolve returns the value that node stands for, or nil if it has none.
func (d *decoder) resolve(path string, node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		// Named only when resolved, so that no alias stands for itself. A
		// value that has itself inside does no harm: the settings end.
		v := d.resolve(path, n.Value)
		if v != nil && n.Name != nil {
			d.anchors[n.Name.GetToken().Value] = v
		}
		return v
	case *ast.AliasNode:
		if v, ok := d.anchors[n.Value.GetToken().Value]; ok {
			return v
		}
		d.report(d.position(n), path, "refers to an unknown YAML anchor; "+asteriskHint)
	case *ast.TagNode:
		d.report(d.position(n), path, "has a YAML tag, which is not supported")
	case nil, *ast.NullNode:
		d.report(d.position(node), path, "has no value; give one or remove the key")
	default:
		return node
	}
	return nil
}

// member stores the value of one entry of a group. The hint is for a key that is
// not known.
func (d *decoder) member(path string, to setting, hint string, e *ast.MappingValueNode) {
	if to == nil {
		d.report(d.position(e.Key), path, "unknown key"+hint)
		return
	}
	d.value(path, to, e.Value)
}

// eachEntry calls f with every entry of a mapping whose key is good.
func (d *decoder) eachEntry(path string, node ast.Node, f func(path, key string, e *ast.MappingValueNode)) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		d.report(d.position(node), path, "must be a group of settings, not "+describe(node))
		return
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if d.values++; d.values > maxValues {
			return
		}
		key, ok := e.Key.(*ast.StringNode)
		if !ok {
			d.report(d.position(e.Key), path, "has a key that is not plain text, such as << or a number")
			continue
		}
		at := join(path, key.Value)
		if seen[key.Value] {
			d.report(d.position(e.Key), at, "is given twice")
			continue
		}
		seen[key.Value] = true
		f(at, key.Value, e)
	}
}

// join returns the path of the setting called key at path. A key that would not
// read well on a line is quoted.
func join(path, key string) string {
	if !only(key, letters+digits+"_-.") || key == "" {
		key = strconv.QuoteToASCII(key)
	}
	if len(key) > 64 {
		key = key[:64] + "…"
	}
	if path == "" {
		return key
	}
	return path + "." + key
}

func (d *decoder) sequence(path string, to list, node ast.Node) {
	n, ok := node.(*ast.SequenceNode)
	if !ok {
		d.report(d.position(node), path, "must be a list, not "+describe(node))
		return
	}
	for i, v := range n.Values {
		d.value(fmt.Sprintf("%s[%d]", path, i), to.item(), v)
	}
}

// scalar stores a single value.
func (d *decoder) scalar(path string, to leaf, node ast.Node) {
	written, text := content(node)
	if written == isText && strings.Contains(text, "$") {
		expanded, wrong := d.env.expand(text)
		for _, w := range wrong {
			d.report(d.position(node), path, w)
		}
		if len(wrong) > 0 {
			return
		}
		// A variable has no type of its own: its text is read as what the
		// setting wants.
		written, text = to.kinds, expanded
	}
	if written&to.kinds == 0 {
		d.report(d.position(node), path, "must be "+to.want+", not "+describe(node))
		return
	}
	d.set(d.position(node), path, to, text)
}

// content returns how a scalar is written, and its text. Anything else has no kind.
func content(node ast.Node) (written kind, text string) {
	switch n := node.(type) {
	case *ast.StringNode:
		return isText, n.Value
	case *ast.LiteralNode:
		return isText, n.Value.Value
	case *ast.IntegerNode:
		return isInteger, n.GetToken().Value
	case *ast.FloatNode:
		return isFloat, n.GetToken().Value
	case *ast.BoolNode:
		return isBoolean, strconv.FormatBool(n.Value)
	default:
		return 0, ""
	}
}

func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a group of settings"
	case *ast.SequenceNode:
		return "a list"
	}
	switch written, _ := content(node); written {
	case isText:
		return "text"
	case isBoolean:
		return "true or false"
	default:
		return "a number"
	}
}

func (d *decoder) position(node ast.Node) Position {
	switch n := node.(type) {
	case nil:
		return Position{Source: d.file, Line: 1, Column: 1}
	case *ast.MappingNode:
		// Its token is the colon after the first key.
		if !n.IsFlowStyle && len(n.Values) > 0 {
			return d.position(n.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return d.position(n.Key)
	}
	return d.at(node.GetToken())
}

func (d *decoder) at(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{Source: d.file, Line: 1, Column: 1}
	}
	return Position{Source: d.file, Line: max(t.Position.Line, 1), Column: max(t.Position.Column, 1)}
}
