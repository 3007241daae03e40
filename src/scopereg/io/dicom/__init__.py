"""DICOM files: the only package that imports pydicom."""
