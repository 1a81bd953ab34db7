"""`make conformance`: programs of others read and witness the change log of Keyturn."""
