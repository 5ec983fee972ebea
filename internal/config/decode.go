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

// Bounds on a file. The parser takes quadratic time in the number of tokens and
// recurses by their nesting, so both are bounded first. Aliases can repeat a large
// value many times, so decoded values are bounded as well.
const (
	maxFile    = 1 << 20
	maxTokens  = 50_000
	maxNesting = 64
	maxValues  = 100_000
)

// A decoder stores one file's values in the tree of settings.
type decoder struct {
	to      *loader
	file    string
	literal bool // a dollar sign has no meaning
	anchors map[string]ast.Node
	values  int // decoded so far, keys included
	json    int // bytes of the values of [JSON] settings so far
}

// ReadOther stores the values of a YAML file that is not a configuration in settings, and
// returns their positions. It is as strict as [Load]. A dollar sign has no meaning in the file.
// An error about the content is an [*Error].
func ReadOther(file string, to Group) (Origins, error) {
	src, err := readFile(file, maxFile)
	if err != nil {
		return nil, err
	}
	l := newLoader(Sources{})
	l.decode(&decoder{file: file, literal: true}, src, to)
	if len(l.problems) > 0 {
		return nil, NewError(l.problems)
	}
	return l.origins, nil
}

// decode stores the values of the file of d in settings, and reports its problems.
func (l *loader) decode(d *decoder, src []byte, to Group) {
	d.to, d.anchors = l, map[string]ast.Node{}
	start := Position{Source: d.file, Line: 1, Column: 1}
	l.origins[""] = start
	body := d.parse(src)
	switch {
	case body != nil:
		d.value("", to, body)
	case len(l.problems) == 0:
		l.report(start, "", "the file is empty")
	}
	if d.values > maxValues {
		l.problems = []Problem{{start, "", fmt.Sprintf("the file has more than %d values, aliases included", maxValues)}}
		body = nil
	}
	l.unread = body == nil
}

// parse returns the document in src, or nil if it reported a problem.
func (d *decoder) parse(src []byte) ast.Node {
	start := Position{Source: d.file, Line: 1, Column: 1}
	if len(src) > maxFile {
		d.to.report(start, "", fmt.Sprintf("the file has more than %d bytes", maxFile))
		return nil
	}
	if !utf8.Valid(src) {
		d.to.report(start, "", "the file is not UTF-8")
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
		d.to.report(d.at(f.Docs[1].Start), "", "a file must contain one YAML document")
		return nil
	}
	if len(f.Docs) == 0 {
		return nil
	}
	return f.Docs[0].Body
}

// bounded reports whether tokens are within the bounds of the parser.
func (d *decoder) bounded(tokens token.Tokens) bool {
	if len(tokens) > maxTokens {
		d.to.report(d.at(tokens[maxTokens]), "", fmt.Sprintf("the file has more than %d YAML tokens", maxTokens))
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
			d.to.report(d.at(t), "", fmt.Sprintf("values are nested more than %d deep", maxNesting))
			return false
		}
	}
	return true
}

// syntax reports an error of the parser without its quotes from the file, which may be secrets.
func (d *decoder) syntax(src []byte, err error) {
	var located interface {
		error
		GetToken() *token.Token
		GetMessage() string
	}
	if !errors.As(err, &located) {
		d.to.report(Position{Source: d.file, Line: 1, Column: 1}, "", "the file is not YAML")
		return
	}
	message, _, _ := strings.Cut(located.GetMessage(), `"`)
	message = strings.ReplaceAll(strings.TrimRight(message, ": "), "\t", `\t`)
	at := d.at(located.GetToken())
	if bareAsterisk.MatchString(lineOf(src, at.Line)) {
		message = asteriskHint
	}
	d.to.report(at, "", "not YAML: "+message)
}

// bareAsterisk matches a value that begins with an asterisk without quotes.
var bareAsterisk = regexp.MustCompile(`[:,\[-]\s*\*`)

const asteriskHint = `a value that begins with * needs quotes, as in match: "*"`

// lineOf returns a line of a file, counted from 1.
func lineOf(src []byte, n int) string {
	lines := strings.Split(string(src), "\n")
	if n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// value stores node in the setting at path. It follows aliases.
func (d *decoder) value(path string, to Setting, node ast.Node) {
	if d.values++; d.values > maxValues {
		return
	}
	node = d.resolve(path, node)
	if node == nil {
		return
	}
	d.to.origins[path] = d.position(node)
	d.store(path, to, node)
}

func (d *decoder) store(path string, to Setting, node ast.Node) {
	switch to := to.(type) {
	case Leaf:
		d.scalar(path, to, node)
	case Group:
		d.group(path, to, node)
	case section:
		d.group(path, to(), node)
	case Dict:
		d.eachEntry(path, node, func(path, key string, e *ast.MappingValueNode) {
			if to, problem := to(key); problem != "" {
				d.to.report(d.position(e.Key), path, problem)
			} else {
				d.value(path, to, e.Value)
			}
		})
	case List:
		d.sequence(path, to, node)
	case JSON:
		to(d.toJSON(path, node))
	case required:
		d.required(path, to, node)
	}
}

// required stores a value that must not be an empty list.
func (d *decoder) required(path string, to required, node ast.Node) {
	d.store(path, to.Setting, node)
	if _, isList := to.Setting.(List); isList && !d.to.given(path+"[0]") && !d.to.faulty(path) && !d.to.faulty(path+"[0]") {
		d.to.reject(path, "is required"+to.why)
	}
}

func (d *decoder) group(path string, g Group, node ast.Node) {
	d.eachEntry(path, node, func(path, key string, e *ast.MappingValueNode) {
		if to := g.find(key); to != nil {
			d.value(path, to, e.Value)
		} else {
			d.to.report(d.position(e.Key), path, whyUnknown(path, g.suggest(key)))
		}
	})
	for _, e := range g {
		at := join(path, e.Key)
		if to, ok := e.To.(required); ok && !d.to.given(at) && !d.to.faulty(at) && !d.to.faulty(path) {
			d.to.reject(at, "is required"+to.why)
		}
	}
}

// resolve returns the value of an anchor or alias, or nil if it reported a problem.
func (d *decoder) resolve(path string, node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.AnchorNode:
		// The anchor is known only after its value is resolved, so no alias refers to
		// itself. A value that contains itself ends with the tree of settings.
		v := d.resolve(path, n.Value)
		if v != nil && n.Name != nil {
			d.anchors[n.Name.GetToken().Value] = v
		}
		return v
	case *ast.AliasNode:
		if v, ok := d.anchors[n.Value.GetToken().Value]; ok {
			return v
		}
		d.to.report(d.position(n), path, "refers to an unknown YAML anchor; "+asteriskHint)
	case *ast.TagNode:
		d.to.report(d.position(n), path, "has a YAML tag, which is not supported")
	case nil, *ast.NullNode:
		d.to.report(d.position(node), path, "has no value; give one or remove the key")
	default:
		return node
	}
	return nil
}

// eachEntry calls f with every entry of a mapping that has a valid key.
func (d *decoder) eachEntry(path string, node ast.Node, f func(path, key string, e *ast.MappingValueNode)) {
	var entries []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	default:
		d.to.report(d.position(node), path, "must be a group of settings, not "+describe(node))
		return
	}
	seen := map[string]bool{}
	for _, e := range entries {
		if d.values++; d.values > maxValues {
			return
		}
		key, ok := e.Key.(*ast.StringNode)
		if !ok {
			d.to.report(d.position(e.Key), path, "has a key that is not plain text, such as << or a number")
			continue
		}
		at := join(path, key.Value)
		if seen[key.Value] {
			d.to.report(d.position(e.Key), at, "is given twice")
			continue
		}
		seen[key.Value] = true
		f(at, key.Value, e)
	}
}

// join returns the path of the member key of the setting at path. It quotes keys with
// unusual characters.
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

func (d *decoder) sequence(path string, to List, node ast.Node) {
	n, ok := node.(*ast.SequenceNode)
	if !ok {
		d.to.report(d.position(node), path, "must be a list, not "+describe(node))
		return
	}
	for i, v := range n.Values {
		d.value(fmt.Sprintf("%s[%d]", path, i), to(), v)
	}
}

// scalar stores a single value.
func (d *decoder) scalar(path string, to Leaf, node ast.Node) {
	written, text := content(node)
	if written == isText && strings.Contains(text, "$") && !d.literal {
		expanded, wrong := d.to.env.expand(path, text)
		for _, w := range wrong {
			d.to.report(d.position(node), path, w)
		}
		if len(wrong) > 0 {
			return
		}
		// The text of a variable has the type that the setting wants.
		written, text = to.kinds, expanded
	}
	if written&to.kinds == 0 {
		text := "must be " + to.want + ", not " + describe(node)
		if hint := removed[path]; hint != "" {
			text += "; " + hint
		}
		d.to.report(d.position(node), path, text)
		return
	}
	d.to.set(d.position(node), path, to, text)
}

// content returns the kind and the text of a scalar. Other nodes have no kind.
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
		// The token of the node is the colon after the first key.
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
