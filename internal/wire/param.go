package wire

import (
	"net/http"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// paramHeader is the prefix of headers that repeat arguments of a tool, and
// paramMark the member of a schema that says which.
const (
	paramHeader = "Mcp-Param-"
	paramMark   = "x-mcp-header"
)

// MirrorArguments sets the headers that repeat arguments, as the definition of
// the tool demands. Those that are there already are replaced: they repeat the
// arguments of another message.
func MirrorArguments(h http.Header, tool, arguments jsonrpc.Value) {
	for name := range h {
		if len(name) > len(paramHeader) && name[:len(paramHeader)] == paramHeader {
			delete(h, name)
		}
	}
	mirror(h, tool.Member("inputSchema"), arguments)
}

func mirror(h http.Header, schema, value jsonrpc.Value) {
	for name, property := range schema.Member("properties").Members() {
		argument := value.Member(name)
		if !argument.Present() || argument.IsNull() {
			continue
		}
		if mark, ok := property.Member(paramMark).Text(); ok && mark != "" {
			h.Set(paramHeader+mark, headerText(argument))
		}
		mirror(h, property, argument)
	}
}

func headerText(v jsonrpc.Value) string {
	if text, ok := v.Text(); ok {
		return EncodeHeader(text)
	}
	return string(v.Bytes)
}
