package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadJSON decodes the JSON of the named file into v. It leaves v unchanged if the file does not
// exist.
func ReadJSON(name string, v any) error {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// WriteJSON replaces the named file with v as indented JSON, with mode perm.
func WriteJSON(name string, v any, perm fs.FileMode) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	return Replace(name, append(raw, '\n'), perm)
}
