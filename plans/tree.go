package plans

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// node is what a plan file needs of YAML: mappings, lists and scalars with their places. Scalars
// keep their text, so that numbers are read by this package's rules and never pass a float.
type node struct {
	kind   nodeKind
	at     place
	text   string // of a scalar
	quoted bool   // a scalar in quotes is text, never a number or a word
	items  []*node
	fields []field
}

type nodeKind int

const (
	kindScalar nodeKind = iota
	kindNull
	kindList
	kindMapping
)

func (k nodeKind) String() string {
	return [...]string{"a single value", "nothing", "a list", "a mapping"}[k]
}

type field struct {
	key   string
	at    place
	value *node
}

type place struct{ line, column int }

// parseTree reads one YAML document, or adds one problem and returns nil.
func parseTree(data []byte, ps *problems) *node {
	src, p := sourceText(data)
	if p == nil {
		var tokens token.Tokens
		if tokens, p = tokenize(src); p == nil {
			var root *node
			if root, p = parseTokens(tokens); p == nil {
				return root
			}
		}
	}
	ps.add(*p)
	return nil
}

// parseTokens runs the YAML library and turns its tree into nodes.
func parseTokens(tokens token.Tokens) (*node, *Problem) {
	// Duplicate keys are found later, together with everything else that is wrong.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, syntaxProblem(err)
	}
	for _, doc := range file.Docs {
		if doc.Body != nil {
			return convert(doc.Body, place{1, 1}, 0)
		}
	}
	return nil, &Problem{Message: "the file is empty", Suggestion: suggestBegin}
}

func syntaxProblem(err error) *Problem {
	p := &Problem{Message: "this is not valid YAML", Suggestion: "check the indentation, colons and brackets here"}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		p.Message += ": " + printable(syntax.Message)
		if syntax.Token != nil && syntax.Token.Position != nil {
			p.Line, p.Column = syntax.Token.Position.Line, syntax.Token.Position.Column
		}
	}
	return p
}

// convert turns the library's tree into nodes; outer is the place of the key that holds n.
func convert(n ast.Node, outer place, depth int) (*node, *Problem) {
	if n == nil {
		return &node{kind: kindNull, at: outer}, nil
	}
	at := placeOf(n.GetToken(), outer)
	if depth > maxDepth {
		return nil, &Problem{Line: at.line, Column: at.column, Message: fmt.Sprintf("nested deeper than %d levels", maxDepth)}
	}
	switch v := n.(type) {
	case *ast.MappingNode:
		return convertMapping(v, at, depth)
	case *ast.SequenceNode:
		out := &node{kind: kindList, at: at}
		for _, value := range v.Values {
			item, p := convert(value, at, depth+1)
			if p != nil {
				return nil, p
			}
			out.items = append(out.items, item)
		}
		return out, nil
	case *ast.NullNode:
		return &node{kind: kindNull, at: outer}, nil
	case *ast.StringNode:
		quoted := v.Token.Type == token.SingleQuoteType || v.Token.Type == token.DoubleQuoteType
		return &node{kind: kindScalar, at: at, text: v.Value, quoted: quoted}, nil
	case ast.ScalarNode:
		return &node{kind: kindScalar, at: at, text: strings.TrimSpace(v.GetToken().Value)}, nil
	}
	return nil, &Problem{Line: at.line, Column: at.column, Message: "this form of YAML is not allowed in a plan file"}
}

func convertMapping(m *ast.MappingNode, at place, depth int) (*node, *Problem) {
	out := &node{kind: kindMapping, at: at}
	for i, entry := range m.Values {
		keyAt := placeOf(entry.Key.GetToken(), at)
		if i == 0 && !m.IsFlowStyle {
			out.at = keyAt // the library's place of a block mapping is its first colon
		}
		key, ok := entry.Key.(ast.ScalarNode)
		if !ok {
			return nil, &Problem{Line: keyAt.line, Column: keyAt.column, Message: "this key is not a plain word", Suggestion: "write key: value"}
		}
		text := key.GetToken().Value
		if s, ok := key.(*ast.StringNode); ok {
			text = s.Value
		}
		value, p := convert(entry.Value, keyAt, depth+1)
		if p != nil {
			return nil, p
		}
		out.fields = append(out.fields, field{key: text, at: keyAt, value: value})
	}
	return out, nil
}

func placeOf(tk *token.Token, outer place) place {
	if tk == nil || tk.Position == nil || tk.Position.Line < 1 {
		return outer
	}
	return place{line: tk.Position.Line, column: max(tk.Position.Column, 1)}
}
