#!/usr/bin/env python3
"""Makes one text of a folder that record.sh wrote: pack.py FOLDER > NAME.txt

A file is a line `@ PATH` and its text, a link a line `> PATH TARGET`. Binary files are left out, of /proc/cpuinfo the first processor is kept.
"""
import os
import sys

root = sys.argv[1]
for folder, _, names in sorted(os.walk(root)):
    for name in sorted(names):
        path = os.path.join(folder, name)
        shown = os.path.relpath(path, root)
        if os.path.islink(path):
            # Links are kept as they lead from the root.
            target = os.path.normpath(os.path.join(os.path.dirname(shown), os.readlink(path)))
            print(f"> {shown} {target}")
            continue
        data = open(path, "rb").read()
        if b"\0" in data:
            continue
        text = data.decode("utf-8", "replace").rstrip("\n")
        if shown == "proc/cpuinfo":
            text = text.split("\n\n")[0]
        print(f"@ {shown}\n{text}")
    # os.walk lists links to folders among the folders.
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path) and os.path.isdir(path):
            shown = os.path.relpath(path, root)
            target = os.path.normpath(os.path.join(os.path.dirname(shown), os.readlink(path)))
            print(f"> {shown} {target}")
