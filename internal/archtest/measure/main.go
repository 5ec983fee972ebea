// Command measure prints figures about the shape of this module's code: where
// types, functions and files are large, and where the files of a package are
// entangled. It judges nothing; people read its table.
//
// For each package it prints:
//
//   - the lines of its files, without tests and generated code;
//   - the type with the most methods, and the struct with the most fields;
//   - arrows between its files, and how many of them run back up. There is an
//     arrow from file A to file B if A mentions anything that B declares: a
//     type, function, variable, constant, method or field. The files are put
//     into an order in which as many arrows as possible point forward, as far
//     as a greedy search finds one; the others run back up. Two files that use
//     each other always count one such arrow;
//   - the lengths of its functions in lines, as the median, the 95th percentile
//     and the longest;
//   - its files of more than 450 lines.
//
// The last lines add up what cmd/thoughtgate is built of ("product"), and
// everything.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

const longFile = 450 // lines

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(os.Stdout, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // this is a program
	}
}

func run(w io.Writer, dir string) error {
	packages, err := load(dir)
	if err != nil {
		return err
	}
	rows := []string{"package\tlines\tmost methods\tmost fields\tarrows back\tfunc p50\tp95\tmax\tlong files"}
	var product, all figures
	for _, p := range packages {
		f := measure(p)
		rows = append(rows, f.row(p.name))
		all.add(f)
		if p.product {
			product.add(f)
		}
	}
	rows = append(rows, product.row("product"), all.row("everything"), "")
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if _, err := io.WriteString(table, strings.Join(rows, "\n")); err != nil {
		return err
	}
	return table.Flush()
}

// A size is something that has a name and a number of parts.
type size struct {
	name string
	n    int
}

func (s size) String() string {
	if s.n == 0 {
		return "-"
	}
	return fmt.Sprintf("%s %d", s.name, s.n)
}

func larger(a, b size) size {
	if b.n > a.n {
		return b
	}
	return a
}

// figures are what is measured of one package, or of several.
type figures struct {
	lines        int
	methods      size // the type with the most methods
	fields       size // the struct with the most fields
	arrows, back int
	functions    []int // lengths, in lines
	longFiles    []size
}

func (f *figures) add(other figures) {
	f.lines += other.lines
	f.methods, f.fields = larger(f.methods, other.methods), larger(f.fields, other.fields)
	f.arrows, f.back = f.arrows+other.arrows, f.back+other.back
	f.functions = append(f.functions, other.functions...)
	f.longFiles = append(f.longFiles, other.longFiles...)
}

func (f figures) row(name string) string {
	slices.Sort(f.functions)
	arrows := "-"
	if f.arrows > 0 {
		arrows = fmt.Sprintf("%d of %d (%d%%)", f.back, f.arrows, 100*f.back/f.arrows)
	}
	var files []string
	for _, s := range f.longFiles {
		files = append(files, s.String())
	}
	return fmt.Sprintf("%s\t%d\t%v\t%v\t%s\t%d\t%d\t%d\t%s", name, f.lines, f.methods, f.fields, arrows,
		percentile(f.functions, 50), percentile(f.functions, 95), percentile(f.functions, 100), strings.Join(files, ", "))
}

// percentile returns the value that p of 100 of the sorted values do not exceed.
func percentile(sorted []int, p int) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*p+99)/100-1)]
}
