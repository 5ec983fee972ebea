package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
)

func measure(s source) figures {
	var f figures
	index := map[*token.File]int{}
	for i, file := range s.files {
		tokens := s.fset.File(file.FileStart)
		index[tokens] = i
		lines := tokens.LineCount()
		f.lines += lines
		if lines > longFile {
			f.longFiles = append(f.longFiles, size{filepath.Base(tokens.Name()), lines})
		}
		f.functions = append(f.functions, lengths(s.fset, file)...)
	}
	f.methods, f.fields = s.largestTypes()

	arrows := make(map[[2]int]bool)
	for i, file := range s.files {
		ast.Inspect(file, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if to, known := s.declaredIn(id, index); known && to != i {
					arrows[[2]int{i, to}] = true
				}
			}
			return true
		})
	}
	f.arrows, f.back = len(arrows), backward(len(s.files), arrows)
	return f
}

// declaredIn returns the file that declares what id mentions.
func (s source) declaredIn(id *ast.Ident, index map[*token.File]int) (int, bool) {
	object := s.info.Uses[id]
	if object == nil {
		return 0, false
	}
	// The parts of a generic type's instance are declared where its own are.
	switch o := object.(type) {
	case *types.Func:
		object = o.Origin()
	case *types.Var:
		object = o.Origin()
	}
	i, ok := index[s.fset.File(object.Pos())]
	return i, ok
}

func lengths(fset *token.FileSet, file *ast.File) []int {
	var lengths []int
	for _, d := range file.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			lengths = append(lengths, fset.Position(fn.End()).Line-fset.Position(fn.Pos()).Line+1)
		}
	}
	return lengths
}

// largestTypes returns the type with the most declared methods, and the struct
// with the most fields.
func (s source) largestTypes() (methods, fields size) {
	for _, object := range s.info.Defs {
		name, ok := object.(*types.TypeName)
		if !ok || name.IsAlias() || s.generated(name) {
			continue
		}
		named, ok := name.Type().(*types.Named)
		if !ok {
			continue
		}
		methods = first(methods, size{name.Name(), named.NumMethods()})
		if st, ok := named.Underlying().(*types.Struct); ok {
			fields = first(fields, size{name.Name(), st.NumFields()})
		}
	}
	return methods, fields
}

// first returns the larger of two sizes, and among equals the one whose name
// comes first: the order of a map must not show.
func first(a, b size) size {
	if b.n == a.n && b.name < a.name {
		return b
	}
	return larger(a, b)
}

func (s source) generated(o types.Object) bool {
	for _, file := range s.files {
		if file.FileStart <= o.Pos() && o.Pos() < file.FileEnd {
			return false
		}
	}
	return true
}

// backward returns how many arrows between n files run back up in the best
// order of the files that was found: a greedy one, improved by moving single
// files for as long as that helps. (The very best one takes too long to find.)
func backward(n int, arrows map[[2]int]bool) int {
	order := greedy(n, arrows)
	best := countBack(order, arrows)
	for improved := true; improved; {
		improved = false
		for from := range order {
			for to := range order {
				moved := move(order, from, to)
				if back := countBack(moved, arrows); back < best {
					order, best, improved = moved, back, true
				}
			}
		}
	}
	return best
}

func countBack(order []int, arrows map[[2]int]bool) int {
	place := make([]int, len(order))
	for i, file := range order {
		place[file] = i
	}
	back := 0
	for a := range arrows {
		if place[a[0]] > place[a[1]] {
			back++
		}
	}
	return back
}

// greedy takes, again and again, the file with the largest surplus of arrows
// that leave it towards the remaining files.
func greedy(n int, arrows map[[2]int]bool) []int {
	var order []int
	taken := make([]bool, n)
	for range n {
		surplus := make([]int, n)
		for a := range arrows {
			if !taken[a[0]] && !taken[a[1]] {
				surplus[a[0]]++
				surplus[a[1]]--
			}
		}
		next := -1
		for file := range n {
			if !taken[file] && (next < 0 || surplus[file] > surplus[next]) {
				next = file
			}
		}
		taken[next] = true
		order = append(order, next)
	}
	return order
}

// move returns a copy of order in which the file at from stands at to.
func move(order []int, from, to int) []int {
	moved := make([]int, 0, len(order))
	for i, file := range order {
		if i != from {
			moved = append(moved, file)
		}
	}
	moved = append(moved, 0)
	copy(moved[to+1:], moved[to:])
	moved[to] = order[from]
	return moved
}
