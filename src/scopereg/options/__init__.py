"""Every option of every verb, declared once: the command line, YAML files and docs/cli.md derive from these.

    first_steps     demo, doctor
    data            data check, data prepare, data phantom, data worlds
    training        train, grid
    models          calibrate, adapt, export
    evaluation      evaluate, compare, report, bench
    registration    register, track, convert
    live            live, view
    reading         what the files of frames and volumes may leave open
    words           the names that options choose from

Settings that Python code takes too stand beside that code, and the options of a verb derive from them: train from
training/settings.py, track from registration/track_settings.py, adapt from registration/adaptation/settings.py.
Nothing here imports torch or any other heavy library, so that `scopereg VERB --help` answers at once.
"""
