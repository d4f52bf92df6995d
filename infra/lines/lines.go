// Package lines finds what texts have in common, and what differs, line by line. It is pure.
//
// What may not enter: what the texts mean, I/O, other packages of this repository.
package lines

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Common returns a longest sequence of equal pairs of two sequences of n and m things, in ascending order of both.
func Common(n, m int, equal func(i, j int) bool) [][2]int {
	var head, tail [][2]int
	first := 0
	for first < n && first < m && equal(first, first) {
		head = append(head, [2]int{first, first})
		first++
	}
	for n > first && m > first && equal(n-1, m-1) {
		n, m = n-1, m-1
		tail = append(tail, [2]int{n, m})
	}
	rows, cols := n-first, m-first
	longest := make([][]int, rows+1) // of what begins at a row and a column
	for i := range longest {
		longest[i] = make([]int, cols+1)
	}
	for i := rows - 1; i >= 0; i-- {
		for j := cols - 1; j >= 0; j-- {
			if equal(first+i, first+j) {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < rows && j < cols; {
		switch {
		case equal(first+i, first+j):
			head = append(head, [2]int{first + i, first + j})
			i, j = i+1, j+1
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	slices.Reverse(tail)
	return append(head, tail...)
}

// Differing returns the lines of a found text that are not wanted, and the lines that are missing in it, each with a word
// before it, for people: at most so many lines, each of at most width characters. It is empty for equal texts.
func Differing(found, wanted string, most, width int) string {
	a, b := strings.Split(strings.TrimSuffix(found, "\n"), "\n"), strings.Split(strings.TrimSuffix(wanted, "\n"), "\n")
	var out []string
	say := func(word, line string) { out = append(out, word+" "+cut(line, width)) }
	i, j := 0, 0
	until := func(toA, toB int) {
		for ; i < toA && j < toB; i, j = i+1, j+1 {
			x, y := strings.TrimSpace(a[i]), strings.TrimSpace(b[j])
			if strings.Join(strings.Fields(x), " ") == strings.Join(strings.Fields(y), " ") {
				x, y = strconv.Quote(a[i]), strconv.Quote(b[j]) // only spaces differ
			}
			x, y = near(x, y, width)
			say("found: ", x)
			say("wanted:", y)
		}
		for ; i < toA; i++ {
			say("not wanted:", strings.TrimSpace(a[i]))
		}
		for ; j < toB; j++ {
			say("missing:", strings.TrimSpace(b[j]))
		}
	}
	for _, pair := range Common(len(a), len(b), func(i, j int) bool { return a[i] == b[j] }) {
		until(pair[0], pair[1])
		i, j = i+1, j+1
	}
	until(len(a), len(b))
	if len(out) > most {
		out = append(out[:most-1], fmt.Sprintf("and %d more lines", len(out)-most+1))
	}
	return strings.Join(out, "\n")
}

// near leaves out the beginning of two long lines, up to a little before the place where they differ.
func near(a, b string, width int) (string, string) {
	x, y := []rune(a), []rune(b)
	if len(x) <= width && len(y) <= width {
		return a, b
	}
	same := 0
	for same < len(x) && same < len(y) && x[same] == y[same] {
		same++
	}
	if same -= width / 4; same <= 0 {
		return a, b
	}
	return "..." + string(x[same:]), "..." + string(y[same:])
}

// cut shortens a line.
func cut(line string, width int) string {
	if runes := []rune(line); len(runes) > width {
		return string(runes[:width]) + "..."
	}
	return line
}
