package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/cbcast/cbcast/internal/consume"
)

// eachLetter gives a consumer's dead letters to row, or prints each as a line of JSON. One that
// cannot be read is named in the error, and the others come.
func (a *app) eachLetter(letters *consume.Letters, asJSON bool, row func(*consume.Dead)) error {
	ids, err := letters.IDs()
	if err != nil {
		return err
	}
	enc := json.NewEncoder(a.io.out)
	var bad []error
	for _, id := range ids {
		d, err := letters.Read(id)
		switch {
		case err != nil:
			bad = append(bad, err)
		case asJSON:
			if err := enc.Encode(d); err != nil {
				return err
			}
		default:
			row(d)
		}
	}
	return errors.Join(bad...)
}

// showLetters prints the dead letters of a consumer.
func (a *app) showLetters(letters *consume.Letters, asJSON bool) error {
	w := tabwriter.NewWriter(a.io.out, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "AT\tID\tRUN\tSEQ\tTRIES\tWHY")
	}
	err := a.eachLetter(letters, asJSON, func(d *consume.Dead) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\n", shortTime(d.Time), printable(d.ID), printable(d.Run), d.Event, d.Tries, printable(d.Reason))
	})
	return errors.Join(err, w.Flush())
}
