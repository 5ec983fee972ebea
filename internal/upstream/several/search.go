package several

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcpname"
)

// An endpoint with search lists two tools of the gate in the place of all tools of its servers. Clients
// that call only listed tools call all others with the second one.
const (
	FindTools = "find_tools"
	CallTool  = "call_tool"
)

// isOwn reports whether a name is that of a tool of the gate.
func isOwn(name string) bool { return name == FindTools || name == CallTool }

// How many tools [Endpoint.Found] returns.
const (
	DefaultFound = 8
	MaxFound     = 50
)

const (
	findTools = `{"name":"find_tools","title":"Find tools","description":"Finds tools. This server has more tools than its list shows. ` +
		`Returns the names, descriptions and input schemas of the tools that match best. Call a found tool with call_tool.",` +
		`"inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What the tool should do, in a few words, or its name"},` +
		`"limit":{"type":"integer","minimum":1,"maximum":50,"default":8,"description":"How many tools to return at most"}},` +
		`"required":["query"],"additionalProperties":false},"annotations":{"readOnlyHint":true,"openWorldHint":false}}`
	callTool = `{"name":"call_tool","title":"Call a tool","description":"Calls a tool that find_tools has found.",` +
		`"inputSchema":{"type":"object","properties":{"name":{"type":"string","description":"The name of the tool, as find_tools returns it"},` +
		`"arguments":{"type":"object","description":"The arguments, as the input schema of the tool describes them","additionalProperties":true}},` +
		`"required":["name"],"additionalProperties":false}}`
)

// OwnTools returns the list of tools of an endpoint with search.
func OwnTools(era mcp.Era) []byte {
	if era == mcp.Modern {
		return []byte(`{"tools":[` + findTools + `,` + callTool + `],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`)
	}
	// A client that knows tasks may ask for one, as for the tools that it calls.
	return []byte(`{"tools":[` + findTools + `,` + strings.TrimSuffix(callTool, "}") + `,"execution":{"taskSupport":"optional"}}]}`)
}

// Found returns the result of [FindTools]: the tools in the lists of all servers that match a query best.
func (e *Endpoint) Found(era mcp.Era, query string, limit int, parts []Part) []byte {
	all := e.merge("", mcpname.ToolsList, parts)
	best := rank(query, all.entries)
	matching := len(best)
	best = best[:min(limit, matching)]
	tools := make([][]byte, len(best))
	for i, entry := range best {
		tools[i] = definition(entry)
	}
	note := ""
	switch {
	case matching == 0:
		note = "No tool matches. Try other words."
	case matching > len(best):
		note = "More tools match. Use other words or a higher limit to see them."
	}
	members := []jsonrpc.Member{{Name: "tools", JSON: jsonrpc.Array(tools)}}
	if missing := unavailable(parts); missing != nil {
		members = append(members, jsonrpc.Member{Name: "unavailableServers", JSON: jsonrpc.Array(missing)})
	}
	if note != "" {
		members = append(members, jsonrpc.Member{Name: "note", JSON: jsonrpc.AppendString(nil, note)})
	}
	found := jsonrpc.AppendObject(nil, members...)
	result := append(textResult(era, string(found)), jsonrpc.Member{Name: "structuredContent", JSON: found})
	if meta := about(parts, all.collisions); meta != nil {
		result = append(result, jsonrpc.Member{Name: "_meta", JSON: meta})
	}
	return jsonrpc.AppendObject(nil, result...)
}

// ToolError returns the result of a tool of the gate that was called wrongly.
func ToolError(era mcp.Era, text string) []byte {
	return jsonrpc.AppendObject(nil, append(textResult(era, text), jsonrpc.Member{Name: "isError", JSON: []byte("true")})...)
}

func textResult(era mcp.Era, text string) []jsonrpc.Member {
	content := jsonrpc.AppendObject(nil, jsonrpc.Member{Name: "type", JSON: []byte(`"text"`)}, jsonrpc.Member{Name: "text", JSON: jsonrpc.AppendString(nil, text)})
	members := []jsonrpc.Member{{Name: "content", JSON: jsonrpc.Array([][]byte{content})}}
	if era == mcp.Modern {
		members = append(members, jsonrpc.Member{Name: "resultType", JSON: []byte(`"complete"`)})
	}
	return members
}

// definition returns what a model needs of a tool.
func definition(entry []byte) []byte {
	var members []jsonrpc.Member
	for name, value := range (jsonrpc.Value{Bytes: entry}).Members() {
		if name == "name" || name == "description" || name == "inputSchema" {
			members = append(members, jsonrpc.Member{Name: name, JSON: value.Bytes})
		}
	}
	return jsonrpc.AppendObject(nil, members...)
}

// unavailable returns the names of the servers whose tools are missing.
func unavailable(parts []Part) (names [][]byte) {
	for _, p := range parts {
		if p.Why != "" && !p.Stale {
			names = append(names, jsonrpc.AppendString(nil, p.Server.Name()))
		}
	}
	return names
}

// Limits of a query and of what it is compared with.
const (
	maxTerms     = 16
	minWord      = 3       // bytes of a word that tells something in a description, or by its beginning
	maxSearched  = 4 << 10 // bytes of a text
	exactName    = 1000    // points for a tool whose name is the query
	nameWeight   = 4
	titleWeight  = 2
	detailWeight = 1 // of a word in the description
)

// rank returns the tools that match a query, best first. A word counts more the fewer tools have it, and
// more in a name than in a description. It counts once for each tool, so that a server gains nothing by
// repeating words.
func rank(query string, entries [][]byte) [][]byte {
	terms := termsOf(query)
	points := make([]float64, len(entries)*len(terms))
	scores := make([]float64, len(entries))
	having := make([]float64, len(terms)) // how many tools have the term
	for i, entry := range entries {
		own := points[i*len(terms) : (i+1)*len(terms)]
		if name := measure(entry, terms, own); strings.EqualFold(name, strings.TrimSpace(query)) {
			scores[i] = exactName
		}
		for t, p := range own {
			if p > 0 {
				having[t]++
			}
		}
	}
	order := make([]int, 0, len(entries))
	for i := range entries {
		for t, p := range points[i*len(terms) : (i+1)*len(terms)] {
			if p > 0 {
				scores[i] += p * math.Log(1+float64(len(entries))/having[t])
			}
		}
		if scores[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	best := make([][]byte, len(order))
	for at, i := range order {
		best[at] = entries[i]
	}
	return best
}

// termsOf returns the different words of a query.
func termsOf(query string) (terms []string) {
	for word := range words(query) {
		if word = strings.ToLower(word); !slices.Contains(terms, word) {
			terms = append(terms, word)
		}
		if len(terms) == maxTerms {
			break
		}
	}
	return terms
}

// measure sets the points of a tool for each term, and returns its name.
func measure(entry []byte, terms []string, points []float64) (name string) {
	count := func(text string, weight float64) {
		for word := range words(text) {
			for t, term := range terms {
				if weight > detailWeight || len(term) >= minWord { // "of" is in many descriptions
					points[t] = max(points[t], weight*similarity(word, term))
				}
			}
		}
	}
	for member, value := range (jsonrpc.Value{Bytes: entry}).Members() {
		switch member {
		case "name":
			name, _ = value.Text()
			count(name, nameWeight)
		case "title":
			title, _ := value.Text()
			count(title, titleWeight)
		case "description":
			description, _ := value.Text()
			count(description, detailWeight)
		}
	}
	return name
}

// similarity returns how well a word matches a term: 1 if they are the same, and less if one begins with
// the other, as a plural does.
func similarity(word, term string) float64 {
	short := min(len(word), len(term))
	switch {
	case word[0]|0x20 != term[0]|0x20 && word[0] < utf8.RuneSelf: // most words, and fast
		return 0
	case !strings.EqualFold(word[:short], term[:short]):
		return 0
	case len(word) == len(term):
		return 1
	case short >= minWord:
		return 0.5
	default:
		return 0
	}
}

// words iterates over the words of a text, as create, Issue and 2 of "create_Issue2". Signs of writing
// without spaces are words of their own.
func words(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		text = text[:min(len(text), maxSearched)]
		start, last := 0, noWord
		for i, r := range text {
			now := kindOf(r)
			if now == last && now != sign || last == upper && now == lower {
				last = now
				continue
			}
			if last != noWord && !yield(text[start:i]) {
				return
			}
			start, last = i, now
		}
		if last != noWord {
			yield(text[start:])
		}
	}
}

// A kind is what a rune can be in a word.
type kind uint8

const (
	noWord kind = iota
	lower       // or a letter without case
	upper
	digit
	sign // of writing without spaces
)

var asciiKinds = func() (kinds [utf8.RuneSelf]kind) {
	for r := range kinds {
		kinds[r] = kindOfOther(rune(r))
	}
	return kinds
}()

func kindOf(r rune) kind {
	if r < utf8.RuneSelf {
		return asciiKinds[r]
	}
	return kindOfOther(r)
}

func kindOfOther(r rune) kind {
	switch {
	case unicode.IsDigit(r):
		return digit
	case !unicode.IsLetter(r) && !unicode.IsMark(r):
		return noWord
	case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai):
		return sign
	case unicode.IsUpper(r):
		return upper
	default:
		return lower
	}
}
