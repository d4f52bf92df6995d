# Removes the note of note-stop, if there is one: file.
rm -f -- "$1" "$1.new"
